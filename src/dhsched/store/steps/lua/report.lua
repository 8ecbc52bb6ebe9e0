-- report: a Worker's sign of life; it is answered with its slot table where its copy is old.
--
-- USES     clock now record worker
-- RARELY   agenda waiting slot wake_own: enter_free, wake_own, slot_table, SLOT_REVS_MAX
-- KEYS     cell
-- ARGV     worker_id, boot, home_seen, term, rev_seen, link, busy, partly, starts_create, starts_recover, cutovers,
--          start_wait_max_ms, walk_max, starts_create_max, starts_recover_max, cutovers_max
-- RETURNS  REPORTED beat home term rev mode known base, then tag and state of each slot, or of those that have changed
--          since revision base (no state: it is gone), unless known
--          GONE
local worker_id, boot, home_seen, term, rev_seen, link, busy, partly, starts_create, starts_recover, cutovers,
  start_wait_max_ms, walk_max, starts_create_max, starts_recover_max, cutovers_max = unpack(ARGV)

local w = worker(worker_id)
if not w or w.gone or w.boot ~= boot then
  return { 'GONE', now }
end

local key = prefix .. 'worker:' .. worker_id
local fresh, revived = not placeable(w), w.lost
w.beat, w.lost = call('HINCRBY', key, 'beat', 1), false
if revived then
  call('HDEL', key, 'lost', 'lost_at')
end
-- The limits of the Worker's Pool, or those of all: for whichever step needs them.
local creates = number(starts_create) > 0 and number(starts_create) or number(starts_create_max)
local recovers = number(starts_recover) > 0 and number(starts_recover) or number(starts_recover_max)
local moves = number(cutovers) > 0 and number(cutovers) or number(cutovers_max)
recovers = math.min(recovers, creates)
if w.creates ~= creates or w.recovers ~= recovers or w.moves ~= moves then
  w.creates, w.recovers, w.moves = creates, recovers, moves
  call('HSET', key, 'starts_create_max', creates, 'starts_recover_max', recovers, 'cutovers_max', moves)
  if not fresh then
    write_free(worker_id, w)
  end
end
if link ~= (w.link or '') then
  w.link = link
  call('HSET', key, 'link', link)
end
if fresh and placeable(w) then
  local enter_free = rarely()
  enter_free(worker_id, w, walk_max)
elseif revived then
  local _, wake_own = rarely()
  touch(worker_id)
  wake_own(worker_id)
end
if revived then
  -- It was only silent: generations that were taken from it have not died, over no item.
  local _, _, slot_table = rarely()
  for _, slot in ipairs(slot_table(worker_id)) do
    local live_key = prefix .. 'live:' .. slot.live
    local f = slot.state == 'departing' and call('HMGET', live_key, 'blamed', 'fence') or {}
    local own, kept = worker_id .. '@' .. slot.number, ''
    for generation in string.gmatch(f[1] or '', '%S+') do
      if generation ~= own then
        kept = kept .. ' ' .. generation
      else
        local r = read_fence(f[2])
        local head, n = string.match(r.suspect or '', '(%d+):(%d+)')
        r.suspect = n and number(n) > 1 and head .. ':' .. whole(n - 1) or nil
        write_fence(slot.live, r)
      end
    end
    if f[1] and #kept < #f[1] then
      call('HSET', live_key, 'blamed', kept)
    end
  end
end
for live, num in string.gmatch(busy, '(%S+)@(%d+)') do
  -- The Worker says that this live needs time. A start may take only so long; the SDK bounds the rest.
  local live_key = prefix .. 'live:' .. live
  local f = call('HMGET', live_key, 'selected', 'fence', 'note', 'committed_at')
  if f[1] == worker_id and f[3] then
    local r = read_fence(f[2])
    if r.epoch == num and (not r.unclaimed or now < f[4] + start_wait_max_ms) then
      call('HDEL', live_key, 'note')
    end
  end
end

-- Compared for equality only: a Worker that seems to be ahead has seen what this store forgot.
local cell_term, slots_rev = number(call('HGET', KEYS[1], 'term') or 1), number(call('HGET', key, 'slots_rev'))
local seen, base = number(rev_seen), 0
local same = home_seen == home and number(term) == cell_term
local known = same and seen == slots_rev
local slots, revs = prefix .. 'slots:' .. worker_id, prefix .. 'slot_revs:' .. worker_id
if partly ~= '' and same and 0 < seen and seen < slots_rev then
  -- What has changed since then is known unless it was so much that some of it is forgotten.
  local _, _, _, SLOT_REVS_MAX = rarely()
  if call('ZCARD', revs) < SLOT_REVS_MAX or seen >= number(call('ZRANGE', revs, 0, 0, 'WITHSCORES')[2]) then
    base = seen
  end
end
local reply = { 'REPORTED', now, w.beat, home, cell_term, slots_rev, w.mode, known and 1 or 0, base }
if base > 0 then
  for _, tag in ipairs(call('ZRANGEBYSCORE', revs, '(' .. rev_seen, '+inf')) do
    local n = #reply
    reply[n + 1], reply[n + 2] = tag, call('HGET', slots, tag) or ''
  end
elseif not known then
  local flat = call('HGETALL', slots)
  for i = 1, #flat do
    reply[9 + i] = flat[i]
  end
end
return reply
