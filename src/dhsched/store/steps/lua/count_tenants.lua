-- count_tenants: keep what one replica counts of each tenant, add up the items that it has accepted, and tell it what the
-- other replicas count and how much input was pending when that was measured last. A batch of items is added once, however often it comes. Reports that are too old are not told, and
-- in the end removed. It owns nothing, so this is no step of the protocol.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     replica, counts, batch, items, fresh_ms, forget_ms
-- RETURNS  the configuration's revision, the last measurement (empty if there is none), then the counts of every other
--          replica
local replica, counts, batch, items, fresh_ms, forget_ms = unpack(ARGV)

local key = prefix .. 'counts'
local reply = { number(call('HGET', KEYS[1], 'config_rev') or 0), call('GET', prefix .. 'pending') or '' }
local reports, added = call('HGETALL', key), 0
for i = 1, #reports, 2 do
  local at, last, said = string.match(reports[i + 1], '^(%d+) (%d+) (.*)$')
  local age = now - number(at)
  if reports[i] == replica then
    added = number(last)
  elseif age > number(forget_ms) then
    call('HDEL', key, reports[i])
  elseif age <= number(fresh_ms) then
    reply[#reply + 1] = said
  end
end
if number(batch) > added then
  for tenant, count in string.gmatch(items, '(%S+) (%S+)') do
    call('HINCRBY', prefix .. 'usage', tenant .. ' items', count)
  end
end
call('HSET', key, replica, whole(now) .. ' ' .. batch .. ' ' .. counts)
call('PEXPIRE', key, forget_ms)
return reply
