-- report_replica: a replica of a role tells how it is, by the store's time; replicas that told so too long ago are removed.
-- Nothing is decided by it, so this is no step of the protocol.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     replica, report, forget_ms
-- RETURNS  the store's time
local replica, report, forget_ms = unpack(ARGV)

local key = prefix .. 'replicas'
local rows = call('HGETALL', key)
for i = 1, #rows, 2 do
  if number(string.match(rows[i + 1], '^%d+')) < now - forget_ms then
    call('HDEL', key, rows[i])
  end
end
call('HSET', key, replica, whole(now) .. ' ' .. report)
return now
