-- note_devices: keep what a Worker says of its devices, as long as the Worker has a record. Nothing is decided by it, so
-- this is no step of the protocol.
--
-- KEYS     cell
-- ARGV     worker_id, devices
-- RETURNS  what was kept before, empty if nothing was
local worker_id, devices = unpack(ARGV)

if call('EXISTS', prefix .. 'worker:' .. worker_id) == 0 then
  return ''
end
local key = prefix .. 'devices:' .. worker_id
local before = call('GET', key)
call('SET', key, devices)
return before or ''
