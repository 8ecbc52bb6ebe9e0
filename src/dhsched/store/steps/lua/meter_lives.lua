-- meter_lives: add the time since the last metering to every tenant's live time, once for each live that has not ended; a
-- page of tenants at a time. The first page is refused to a replica that comes too soon after another. It owns nothing, so
-- this is no step of the protocol.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     after, elapsed_ms, tenants_max, turn_ms, gap_max_ms
-- RETURNS  the time that was added, the tenant to go on after (empty at the end), then tenant and lives of each tenant
local after, elapsed_ms, tenants_max, turn_ms, gap_max_ms = unpack(ARGV)

local usage, lives_key, ended_key = prefix .. 'usage', prefix .. 'lives', prefix .. 'ended'
local elapsed, from = number(elapsed_ms), '[' .. after .. '0'
if after == '' then
  local at = number(call('HGET', usage, 'metered_at') or now)
  if at < now and now - at < number(turn_ms) then
    return { 0, '' }
  end
  call('HSET', usage, 'metered_at', whole(now))
  elapsed, from = math.max(0, math.min(now - at, number(gap_max_ms))), '-'
end

local reply, tenant = { elapsed, '' }, nil
for _ = 1, number(tenants_max) do
  local first = call('ZRANGEBYLEX', lives_key, from, '+', 'LIMIT', 0, 1)[1]
  if not first then
    return reply
  end
  tenant = string.match(first, '^[^/]*')
  local low, high = '[' .. tenant .. '/', '(' .. tenant .. '0' -- The byte after the slash is 0.
  local lives = call('ZLEXCOUNT', lives_key, low, high) - call('ZLEXCOUNT', ended_key, low, high)
  if lives > 0 then
    call('HINCRBY', usage, tenant .. ' live_ms', whole(lives * elapsed))
    local n = #reply
    reply[n + 1], reply[n + 2] = tenant, lives
  end
  from = '[' .. tenant .. '0'
end
reply[2] = tenant
return reply
