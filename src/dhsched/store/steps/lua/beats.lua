-- beats: the beat of each of these Workers. It only reads.
--
-- KEYS     cell
-- ARGV     workers
-- RETURNS  beat, lost and mode of each, in the order of the argument; the beat of a Worker that is gone is empty
local workers = unpack(ARGV)

local reply, n = {}, 0
for id in string.gmatch(workers, '%S+') do
  local f = call('HMGET', prefix .. 'worker:' .. id, 'beat', 'lost', 'gone', 'mode')
  reply[n + 1], reply[n + 2], reply[n + 3] = f[3] ~= '1' and f[1] or '', f[2] or '', f[4] or ''
  n = n + 3
end
return reply
