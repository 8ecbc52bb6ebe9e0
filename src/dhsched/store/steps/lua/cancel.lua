-- cancel: give up the move with this number, and only that one.
--
-- USES     clock now agenda record waiting worker slot live
-- KEYS     cell
-- ARGV     live, num
-- RETURNS  CANCELLED
--          NO_MOVE    the live has no move with this number
local live, num = unpack(ARGV)

local r = read_live(live)
if not r or r.move_number ~= num then
  return { 'NO_MOVE', now }
end
clear_move(live, r)
return { 'CANCELLED', now }
