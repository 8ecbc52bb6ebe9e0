-- change_keys: write a field of the key ring, or delete fields, or both, and let every replica notice. The key ring owns
-- nothing, so this is no step of the protocol.
--
-- KEYS     cell
-- ARGV     field, value, deleted, needed, expected, absent
-- RETURNS  one number: how many fields changed; 0 where `needed` is not there, or not as `expected` (empty: anything), or
--          `absent` is there, and then nothing changes
local field, value, deleted, needed, expected, absent = unpack(ARGV)

local key = prefix .. 'keys'
local found = needed ~= '' and call('HGET', key, needed)
if needed ~= '' and (not found or expected ~= '' and found ~= expected) then
  return { 0 }
end
if absent ~= '' and call('HEXISTS', key, absent) == 1 then
  return { 0 }
end
local changed = 0
for each in string.gmatch(deleted, '%S+') do
  changed = changed + call('HDEL', key, each)
end
if field ~= '' then
  call('HSET', key, field, value)
  changed = changed + 1
end
call('HINCRBY', key, 'rev', 1)
return { changed }
