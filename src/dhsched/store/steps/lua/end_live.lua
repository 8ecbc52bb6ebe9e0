-- end_live: end the live now, or once what is pending has been acked.
--
-- USES     clock now agenda record waiting worker slot live finish
-- KEYS     cell
-- ARGV     live, after_pending, ended_ttl_ms
-- RETURNS  FINISHED state
--          NOT_FOUND
local live, after_pending, ended_ttl_ms = unpack(ARGV)

local r = read_live(live)
if not r then
  return { 'NOT_FOUND', now }
elseif r.state == 'ended' then
  return { 'FINISHED', now, 'ended' }
elseif after_pending == '1' and r.acked < r.appended then
  r.state = 'closing'
  write_fence(live, r)
  return { 'FINISHED', now, 'closing' }
end
finish(live, r, ended_ttl_ms)
wake_controller(live, r.controller)
return { 'FINISHED', now, 'ended' }
