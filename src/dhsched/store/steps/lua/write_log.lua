-- write_log: add entries to a bounded log (`events`, `audit`) and drop the oldest beyond its limit. Logs own nothing, so
-- this is no step of the protocol.
--
-- KEYS     cell
-- ARGV     log, field, entries_max
-- EACH     entry
-- RETURNS  how many entries were added
local log, field, entries_max = unpack(ARGV, 1, 3)

local function add(entry)
  call('XADD', prefix .. log, 'MAXLEN', '~', entries_max, '*', field, entry)
end

for i = 4, #ARGV, 1 do
  add(unpack(ARGV, i, i + 0))
end
return #ARGV - 3
