-- measure_pending: tell what pending input, states and journals of each tenant take in the store's memory, for a page of
-- lives: of the named tenants, or of all. A page ends after some lives, or after many bytes. A replica that begins while
-- another measures, or just after it, is refused. It owns nothing, so this is no step of the protocol.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     after, lives_max, bytes_max, turn_ms, tenants
-- RETURNS  the time (0 if it is another replica's turn), the live to go on after (empty at the end), then tenant and bytes
--          of each tenant that has input
local after, lives_max, bytes_max, turn_ms, tenants = unpack(ARGV)

local usage, lives_key, input = prefix .. 'usage', prefix .. 'lives', prefix .. 'input:'
local last = number(call('HGET', usage, 'measured_at') or 0)
if last <= now and now - last < number(turn_ms) then
  return { 0, '' }
end
call('HSET', usage, 'measured_at', whole(now))

local ranges = {}
for tenant in string.gmatch(tenants, '%S+') do
  ranges[#ranges + 1] = { '[' .. tenant .. '/', '(' .. tenant .. '0' } -- The byte after the slash is 0.
end
if #ranges == 0 then
  ranges[1] = { '-', '+' }
end
if after ~= '' then
  ranges[1][1] = '(' .. after
end

local found, tenants_found = {}, {}
local lives_left, bytes_left = number(lives_max), number(bytes_max)
local function measure(live)
  -- SAMPLES 0: every node of the list, not an estimate.
  local bytes = (call('MEMORY', 'USAGE', input .. live, 'SAMPLES', 0) or 0)
    + (call('MEMORY', 'USAGE', prefix .. 'journal:' .. live, 'SAMPLES', 0) or 0)
    + call('HSTRLEN', prefix .. 'data:' .. live, 'saved')
  lives_left = lives_left - 1
  if bytes > 0 then
    local tenant = string.match(live, '^[^/]*')
    if not found[tenant] then
      found[tenant] = 0
      tenants_found[#tenants_found + 1] = tenant
    end
    found[tenant] = found[tenant] + bytes
    bytes_left = bytes_left - bytes
  end
  return lives_left == 0 or bytes_left <= 0
end
local function page()
  for _, range in ipairs(ranges) do
    for _, live in ipairs(call('ZRANGEBYLEX', lives_key, range[1], range[2], 'LIMIT', 0, lives_left)) do
      if measure(live) then
        return live
      end
    end
  end
  return ''
end

local reply = { whole(now), page() }
for _, tenant in ipairs(tenants_found) do
  local n = #reply
  reply[n + 1], reply[n + 2] = tenant, whole(found[tenant])
end
return reply
