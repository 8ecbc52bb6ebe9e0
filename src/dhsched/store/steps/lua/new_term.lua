-- new_term: the store has lost history. Put every generation that it, or its lost past, may have issued below a floor.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     term, seen_term, term_step
-- RETURNS  NEW_TERM term floor
--          MOOT    another replica was first
local term, seen_term, term_step = unpack(ARGV)

local f = call('HMGET', KEYS[1], 'term', 'epoch_floor', 'epoch_base', 'rev')
if number(f[1] or 1) ~= number(term) then
  return { 'MOOT', now }
end
-- The floor follows from the term: a store that forgot a whole term cannot arrive at the same floor again.
local new = math.max(number(term), number(seen_term)) + 1
local floor = math.max((new - 1) * term_step, math.max(number(f[2] or 0), number(f[3] or 0)) + term_step)
call('HSET', KEYS[1], 'term', new, 'epoch_floor', floor, 'rev', number(f[4] or 0) + term_step)
return { 'NEW_TERM', now, new, floor }
