-- due: lives that the agenda says to look at now, the most urgent class first. It only reads: whoever is told still has
-- to look, and only the first look counts.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     limit, classes
-- RETURNS  the lives
local limit, classes = unpack(ARGV)
limit = number(limit)

local found = {}
for class = 0, number(classes) - 1 do
  local left = limit - #found
  if left > 0 then
    for _, live in ipairs(call('ZRANGEBYSCORE', prefix .. 'agenda:' .. class, '-inf', now, 'LIMIT', 0, left)) do
      found[#found + 1] = live
    end
  end
end
return found
