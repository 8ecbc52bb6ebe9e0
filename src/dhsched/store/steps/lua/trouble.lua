-- trouble: note one trouble that a Worker's name had, and tell all that it had within the window. The same trouble again
-- counts once, from its latest time. Blame owns nothing, so this is no step of the protocol.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     name, member, window_ms, members_max
-- RETURNS  whether the trouble is new, then every one within the window
local name, member, window_ms, members_max = unpack(ARGV)

local key = prefix .. 'trouble:' .. name
call('ZREMRANGEBYSCORE', key, '-inf', now - window_ms)
local new = 0
if member ~= '' then
  new = call('ZADD', key, now, member)
  call('ZREMRANGEBYRANK', key, 0, -members_max - 1)
  call('PEXPIRE', key, window_ms)
end
local reply = { new }
for i, each in ipairs(call('ZRANGE', key, 0, -1)) do
  reply[1 + i] = each
end
return reply
