-- join_cells: make the cell one of several, of which it keeps the list, if it is new. Workers are numbered above
-- `issued`, so that two new cells give out different WorkerIDs. No live and no Worker is touched, so this is no step of
-- the protocol.
--
-- KEYS     cell
-- ARGV     names, issued
-- RETURNS  the list that the cell has; empty if it has Workers or lives and no list
local names, issued = unpack(ARGV)

local kept = call('GET', prefix .. 'cells')
if not kept and call('EXISTS', prefix .. 'workers', prefix .. 'lives') > 0 then
  return { '' }
end
if not kept then
  kept = names
  call('SET', prefix .. 'cells', kept)
  local mine = number(call('HGET', KEYS[1], 'workers_issued') or 0)
  call('HSET', KEYS[1], 'workers_issued', math.max(mine, number(issued)))
end
return { kept }
