-- snapshot: the Workers that changed after a revision, in the order of their revisions; a page of them. It only reads.
--
-- A page never splits a revision, which one step may have given to several Workers. So whoever asks on from the last
-- row's revision, until a page says that there is no more, and lets later rows replace earlier ones, holds every such
-- Worker exactly as of the last page's rev.
--
-- KEYS     cell
-- ARGV     since, limit
-- RETURNS  home term rev placed config_rev more, then worker rev pool load capacity starting mode lost gone beat labels of
--          each row
local since, limit = unpack(ARGV)
limit = number(limit)

local key = prefix .. 'workers'
local cell = call('HMGET', KEYS[1], 'home', 'term', 'rev', 'placed', 'config_rev')
local found = call('ZRANGEBYSCORE', key, '(' .. since, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
local more = 0
if #found == 2 * limit then
  local last = found[#found]
  while found[#found] == last do
    found[#found], found[#found - 1] = nil, nil
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', key, last, last)) do
    found[#found + 1] = id
    found[#found + 1] = last
  end
  more = call('ZCOUNT', key, '(' .. last, '+inf')
end

local reply = { cell[1] or '', number(cell[2] or 1) }
for i = 3, 5 do
  reply[i] = number(cell[i] or 0)
end
reply[6] = more
local n = #reply
for i = 1, #found, 2 do
  local f = call('HMGET', prefix .. 'worker:' .. found[i], 'pool', 'load', 'capacity', 'starting', 'mode', 'lost',
    'gone', 'beat', 'labels')
  reply[n + 1], reply[n + 2] = found[i], found[i + 1]
  for j = 1, 9 do
    reply[n + 2 + j] = f[j] or ''
  end
  n = n + 11
end
return reply
