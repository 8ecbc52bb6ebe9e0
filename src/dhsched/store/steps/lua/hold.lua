-- hold: stop input at the boundary it stands at, or at the next one it comes to.
--
-- USES     clock now record
-- KEYS     cell
-- ARGV     live, num
-- RETURNS  HELD at     an item's number, or `next`
--          NO_MOVE     the live has no move with this number
local live, num = unpack(ARGV)

local key = prefix .. 'live:' .. live
local f = call('HMGET', key, 'move_number', 'fence', 'cursors')
if f[1] ~= num then
  return { 'NO_MOVE', now }
end
local r = read_fence(f[2])
if not r.hold or r.hold == 'next' then
  local appended, released, acked, _, at_boundary = read_cursors(f[3])
  local item = call('LINDEX', prefix .. 'input:' .. live, released - acked) or ''
  local mark = string.sub(item, 1, 1)
  -- Nothing is half said. An interrupt that is next is not to be kept waiting.
  local rests = (at_boundary == '1' and mark ~= 'I' and mark ~= 'J') or acked == appended
  r.hold = rests and whole(released) or 'next'
  write_fence(live, r)
end
return { 'HELD', now, r.hold }
