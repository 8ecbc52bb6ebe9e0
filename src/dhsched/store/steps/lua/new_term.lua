-- new_term: an operator wants every live to be placed anew. Put every generation that was ever issued below a floor.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     term, term_step
-- RETURNS  NEW_TERM term floor
--          MOOT    the term is another one already
local term, term_step = unpack(ARGV)

local f = call('HMGET', KEYS[1], 'term', 'epoch_base', 'rev')
if number(f[1] or 1) ~= number(term) then
  return { 'MOOT', now }
end
floor = math.max(term * term_step, math.max(floor, number(f[2] or 0)) + term_step)
call('HSET', KEYS[1], 'term', term + 1, 'epoch_floor', floor, 'rev', number(f[3] or 0) + term_step)
return { 'NEW_TERM', now, term + 1, floor }
