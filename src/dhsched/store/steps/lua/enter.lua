-- enter: the first call of every connection that writes. On a server whose name is not that of the home, a home begins:
-- the numbers jump, so that none which may be lost is given out again.
--
-- USES     clock now server
-- KEYS     cell
-- ARGV     jump, first, schema
-- RETURNS  ENTERED home again pos, then name, position and time of each home, the oldest first
local jump, first, schema = unpack(ARGV)

local f = call('HMGET', KEYS[1], 'schema', 'home', 'epoch_base', 'epoch_floor', 'pull_base', 'workers_issued', 'rev', 'pos')
if f[1] and f[1] ~= schema then
  return redis.error_reply('SCHEMA ' .. f[1])
end
if first == '1' and call('EXISTS', KEYS[1]) == 0 then
  jump = 0 -- An empty cell, and nobody who remembers another: it begins at 1.
end
local name, again = server(), 1
if name ~= (f[2] or '') or (first == '1' and name == 'none') then
  jump, again = number(jump), 0
  local floor, pulls = number(f[4] or 0), number(f[5] or 0) + jump
  local base, rev = math.max(number(f[3] or 0), floor) + jump, number(f[7] or 0) + jump
  local issued = math.max(number(f[6] or 0), floor) + jump
  if math.max(base, pulls, issued, rev) > 2 ^ 50 - 2 ^ 21 then
    return redis.error_reply('NUMBERS ' .. whole(base))
  end
  call('HSET', KEYS[1], 'schema', schema, 'home', name, 'epoch_base', base, 'pull_base', pulls, 'workers_issued', issued,
    'rev', rev)
  call('RPUSH', prefix .. 'homes', name .. ' ' .. whole(f[8] or 0) .. ' ' .. whole(now))
  call('LTRIM', prefix .. 'homes', -64, -1)
end
local reply = { 'ENTERED', now, name, again, number(f[8] or 0) }
for _, row in ipairs(call('LRANGE', prefix .. 'homes', 0, -1)) do
  reply[#reply + 1] = row
end
return reply
