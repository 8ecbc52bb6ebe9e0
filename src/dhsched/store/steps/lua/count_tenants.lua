-- count_tenants: keep what one replica counts of each tenant, and tell it what the others count. Reports that are too old
-- are removed. It owns nothing, so this is no step of the protocol.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     replica, counts, fresh_ms
-- RETURNS  the configuration's revision, then the counts of every other replica
local replica, counts, fresh_ms = unpack(ARGV)

local key = prefix .. 'counts'
local reply = { number(call('HGET', KEYS[1], 'config_rev') or 0) }
local reports = call('HGETALL', key)
for i = 1, #reports, 2 do
  local at, said = string.match(reports[i + 1], '^(%d+) (.*)$')
  if now - number(at) > number(fresh_ms) then
    call('HDEL', key, reports[i])
  elseif reports[i] ~= replica then
    reply[#reply + 1] = said
  end
end
call('HSET', key, replica, whole(now) .. ' ' .. counts)
call('PEXPIRE', key, fresh_ms)
return reply
