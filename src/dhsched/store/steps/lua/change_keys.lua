-- change_keys: add a field to the key ring, or delete fields, or both, and let every replica notice. The key ring owns
-- nothing, so this is no step of the protocol.
--
-- KEYS     cell
-- ARGV     field, value, deleted
-- RETURNS  one number: how many fields changed; 0 where the field to add is there already, and then nothing is deleted either
local field, value, deleted = unpack(ARGV)

local key = prefix .. 'keys'
local changed = 0
if field ~= '' then
  changed = call('HSETNX', key, field, value)
  if changed == 0 then
    return { 0 }
  end
end
for each in string.gmatch(deleted, '%S+') do
  changed = changed + call('HDEL', key, each)
end
call('HINCRBY', key, 'rev', 1)
return { changed }
