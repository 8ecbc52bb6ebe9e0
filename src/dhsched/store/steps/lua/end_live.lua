-- end_live: end the live now, or once what is pending has been acked.
--
-- USES     clock now agenda waiting worker slot live finish
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
elseif after_pending == '1' and number(r.acked or 0) < number(r.appended or 0) then
  call('HSET', prefix .. 'live:' .. live, 'state', 'closing')
  return { 'FINISHED', now, 'closing' }
end
finish(live, r, ended_ttl_ms)
wake_controller(live, r.controller)
return { 'FINISHED', now, 'ended' }
