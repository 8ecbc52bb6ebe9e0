-- configure: put or delete a Pool, a DigitalID or the limits of a tenant, and let every replica notice. An empty value
-- deletes. Configuration owns nothing, so this is no step of the protocol.
--
-- KEYS     cell
-- ARGV     kind, name, value
-- RETURNS  whether it was there, and the configuration's revision now
local kind, name, value = unpack(ARGV)

local key = prefix .. kind
local known = call('HEXISTS', key, name)
if value == '' then
  call('HDEL', key, name)
else
  call('HSET', key, name, value)
end
return { known, call('HINCRBY', KEYS[1], 'config_rev', 1) }
