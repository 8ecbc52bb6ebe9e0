-- copy_config: take over the Pools, DigitalIDs and limits of tenants, or the key ring, of another cell of the
-- deployment, whole, unless what is here is newer. A copy owns nothing, so this is no step of the protocol.
--
-- KEYS     cell
-- ARGV     kinds, new_rev, also_equal
-- EACH     kind, field, value
-- RETURNS  one number: whether it was taken over
local kinds, new_rev, also_equal = unpack(ARGV, 1, 3)

local holder, counter = KEYS[1], 'config_rev'
if kinds == 'keys' then
  holder, counter = prefix .. 'keys', 'rev'
end
local mine = number(call('HGET', holder, counter) or 0)
if number(new_rev) < mine or number(new_rev) == mine and also_equal == '' then
  return { 0 }
end
for kind in string.gmatch(kinds, '%S+') do
  call('DEL', prefix .. kind)
end

local function keep(kind, field, value)
  call('HSET', prefix .. kind, field, value)
end

for i = 4, #ARGV, 3 do
  keep(unpack(ARGV, i, i + 2))
end
call('HSET', holder, counter, new_rev)
return { 1 }
