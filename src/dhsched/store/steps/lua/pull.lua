-- pull: the selected Worker takes up its generation, or comes back to it (paper, algorithm 2).
--
-- USES     clock now agenda record waiting worker slot item
-- KEYS     cell
-- ARGV     live, worker_id, epoch, after, controller, mark, journal, start_quick_ms, start_slow_ms, pace_max, walk_max
-- RETURNS  PULLING pull_no after digital_id room metadata config saved journal_last asked, then the journal if it was asked
--                                 for; older pulls of this generation are dead
--          STALE worker epoch pull_no    also for a number that this store never issued
--          ENDED
local live, worker_id, epoch, after, controller, mark, journal, start_quick_ms, start_slow_ms, pace_max, walk_max = unpack(ARGV)

-- The Worker's start budgets follow how long a start took. A planned move is claimed by a runtime that was prepared.
local function follow_start(cause, took)
  local w = worker(worker_id)
  local pace = w.pace
  if cause ~= 'create' and cause ~= 'recover' then
    return
  elseif took <= number(start_quick_ms) then
    pace = math.min(2 * pace, number(pace_max))
  elseif took > number(start_slow_ms) then
    pace = math.max(1, math.floor(pace / 2))
  end
  local more = (pace - w.pace) * w.recovers
  if pace ~= w.pace then
    w.pace = pace
    call('HSET', prefix .. 'worker:' .. worker_id, 'pace', pace)
    write_free(worker_id, w)
  end
  if more > 0 and placeable(w) then
    wake_waiting(w.pool, math.min(more, w.capacity - w.load, number(walk_max)))
  end
end

local key = prefix .. 'live:' .. live
local selected, fence, cursors, digital_id, room, waits, cause, committed_at = unpack(call('HMGET', key, 'selected',
  'fence', 'cursors', 'digital_id', 'room', 'waits', 'cause', 'committed_at'))
if not fence then
  return { 'STALE', now, '', 0, 0 }
end
local r = read_fence(fence)
if r.state == 'ended' then
  return { 'ENDED', now }
end
local slot = slot_of(worker_id, live, epoch)
if r.epoch ~= epoch or selected ~= worker_id or number(epoch) <= floor or (slot ~= 'starting' and slot ~= 'running') then
  return { 'STALE', now, selected, number(r.epoch), number(r.pull_no) }
end
local appended, released, acked, config_next, _, acked_mark = read_cursors(cursors)
after = number(after)
if not fits(live, after, mark, acked, acked_mark, appended) then
  return { 'STALE', now, '', 0, 0 }
end

local claims = r.unclaimed
if claims then
  write_slot(worker_id, live, epoch, 'running', nil, slot)
  call('HDEL', key, 'note', 'stalled')
  r.unclaimed, r.first, r.waits = nil, '', waits
  leave_waiting(live, r) -- Given up too early, it goes on where it is.
  follow_start(cause, now - committed_at)
end
-- No cursor goes back: what was released stays so, or a late pull would let a planned move repeat it.
after = math.max(after, acked)
if after > released then
  -- The mark fits, so the runtime has the item: it is the release that the store has forgotten.
  local item = call('LINDEX', prefix .. 'input:' .. live, after - acked - 1)
  local ends = string.find(item, '^[TCIJ]') or (r.state == 'closing' and after == appended)
  call('HSET', key, 'cursors', cursors_text(appended, after, acked, config_next, ends and '1' or '0', acked_mark))
end
r.pull_no = math.max(number(r.pull_no), pull_base) + 1
local written = { 'fence', fence_text(r), 'controller', controller }
if claims then
  written[5], written[6] = 'claimed_at', now
end
call('HSET', key, unpack(written))
local data = call('HMGET', prefix .. 'data:' .. live, 'metadata', 'config', 'saved', 'journal_last')
local entries = journal ~= '' and call('LRANGE', prefix .. 'journal:' .. live, 0, -1) or {}
return { 'PULLING', now, r.pull_no, after, digital_id, room or '', data[1] or '', data[2] or '', data[3] or '',
  number(data[4] or 0), journal ~= '' and 1 or 0, unpack(entries) }
