-- describe: replace the metadata or the labels of a live. No step decides by them, so this is no step of the protocol.
-- Each is `=` and its new value, or empty where it does not change.
--
-- KEYS     cell
-- ARGV     live, metadata, labels
-- RETURNS  whether there is such a live
local live, metadata, labels = unpack(ARGV)

if call('EXISTS', prefix .. 'live:' .. live) == 0 then
  return { 0 }
end
local function replace(field, given)
  if given == '=' then
    call('HDEL', prefix .. 'data:' .. live, field)
  elseif given ~= '' then
    call('HSET', prefix .. 'data:' .. live, field, string.sub(given, 2))
  end
end
replace('metadata', metadata)
replace('labels', labels)
return { 1 }
