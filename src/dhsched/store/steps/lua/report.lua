-- report: a Worker's sign of life; it is answered with its slot table where its copy is old.
--
-- USES     clock now agenda waiting worker slot wake_own
-- KEYS     cell
-- ARGV     worker_id, boot, term, rev_seen, link, busy, start_wait_max_ms, walk_max
-- RETURNS  REPORTED beat term rev mode known, then tag and state of each slot unless known
--          GONE
--          ROLLED_BACK term rev
local worker_id, boot, term, rev_seen, link, busy, start_wait_max_ms, walk_max = unpack(ARGV)
term, rev_seen = number(term), number(rev_seen)

local cell = call('HMGET', KEYS[1], 'term', 'rev')
local cell_term, cell_rev = number(cell[1] or 1), number(cell[2] or 0)
if term > cell_term or (term == cell_term and rev_seen > cell_rev) then
  return { 'ROLLED_BACK', now, cell_term, cell_rev }
end
local w = worker(worker_id)
if not w or w.gone or w.boot ~= boot then
  return { 'GONE', now }
end

local key = prefix .. 'worker:' .. worker_id
if term == cell_term and rev_seen > number(call('HGET', key, 'slots_rev')) then
  return { 'ROLLED_BACK', now, cell_term, cell_rev }
end
local fresh, revived = not placeable(w), w.lost
w.beat, w.lost = call('HINCRBY', key, 'beat', 1), false
if revived then
  call('HDEL', key, 'lost', 'lost_at')
end
if link ~= (w.link or '') then
  w.link = link
  call('HSET', key, 'link', link)
end
if fresh and placeable(w) then
  enter_free(worker_id, w, walk_max)
elseif revived then
  touch(worker_id)
  wake_own(worker_id)
end
if revived then
  -- It was only silent: generations that were taken from it have not died, over no item.
  for _, slot in ipairs(slot_table(worker_id)) do
    local live_key = prefix .. 'live:' .. slot.live
    local f = slot.state == 'departing' and call('HMGET', live_key, 'blamed', 'suspect') or {}
    if f[1] == worker_id .. '@' .. slot.number then
      local head, n = string.match(f[2], '(%d+) (%d+)')
      call('HSET', live_key, 'blamed', '', 'suspect', n and number(n) > 1 and head .. ' ' .. whole(n - 1) or '')
    end
  end
end
for live, num in string.gmatch(busy, '(%S+)@(%d+)') do
  -- The Worker says that this live needs time. A start may take only so long; the SDK bounds the rest.
  local live_key = prefix .. 'live:' .. live
  local f = call('HMGET', live_key, 'selected', 'epoch', 'note', 'active', 'committed_at')
  if f[1] == worker_id and f[2] == num and f[3] and (f[4] ~= '' or now < f[5] + start_wait_max_ms) then
    call('HDEL', live_key, 'note')
  end
end

local slots_rev = number(call('HGET', key, 'slots_rev'))
local known = term == cell_term and rev_seen == slots_rev
local reply = { 'REPORTED', now, w.beat, cell_term, slots_rev, w.mode, known and 1 or 0 }
if not known then
  local flat = call('HGETALL', prefix .. 'slots:' .. worker_id)
  for i = 1, #flat do
    reply[7 + i] = flat[i]
  end
end
return reply
