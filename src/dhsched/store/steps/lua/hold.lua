-- hold: stop input at the boundary it stands at, or at the next one it comes to.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     live, num
-- RETURNS  HELD at     an item's number, or `next`
--          NO_MOVE     the live has no move with this number
local live, num = unpack(ARGV)

local key = prefix .. 'live:' .. live
local f = call('HMGET', key, 'move_number', 'move_hold', 'at_boundary', 'acked', 'appended', 'released')
if f[1] ~= num then
  return { 'NO_MOVE', now }
end
local at = f[2]
if at == '' or at == 'next' then
  local item = call('LINDEX', prefix .. 'input:' .. live, f[6] - f[4]) or ''
  local mark = string.sub(item, 1, 1)
  -- Nothing is half said. An interrupt that is next is not to be kept waiting.
  local rests = (f[3] == '1' and mark ~= 'I' and mark ~= 'J') or f[4] == f[5]
  at = rests and f[6] or 'next'
  call('HSET', key, 'move_hold', at)
end
return { 'HELD', now, at }
