-- say_once: whether the caller is the first to say this of a Worker's drain. Of a drain that was cancelled nothing more is
-- said. Only the event depends on it, so this is no step of the protocol.
--
-- KEYS     cell
-- ARGV     worker_id, what
-- RETURNS  1 for the first one, else 0
local worker_id, what = unpack(ARGV)

local key = prefix .. 'drains'
if call('HEXISTS', key, worker_id) == 0 then
  return 0
end
return call('HSETNX', key, worker_id .. ' ' .. what, 1)
