-- pull: the selected Worker takes up its generation, or comes back to it (paper, algorithm 2).
--
-- USES     clock now agenda waiting worker slot item
-- KEYS     cell
-- ARGV     live, worker_id, epoch, after, controller, mark, start_quick_ms, start_slow_ms, pace_max, walk_max
-- RETURNS  PULLING pull_no after digital_id room metadata config saved
--                                 older pulls of this generation are dead
--          STALE worker epoch pull_no    also for a number that this store never issued
--          ENDED
local live, worker_id, epoch, after, controller, mark, start_quick_ms, start_slow_ms, pace_max, walk_max = unpack(ARGV)

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
local f = call('HMGET', key, 'epoch', 'issued', 'selected', 'active', 'state', 'pull_no', 'acked', 'released',
  'digital_id', 'room', 'waits', 'acked_mark', 'appended', 'cause', 'committed_at')
if not f[1] then
  return { 'STALE', now, '', 0, 0 }
end
if f[5] == 'ended' then
  return { 'ENDED', now }
end
local slot = slot_of(worker_id, live, epoch)
if f[1] ~= epoch or f[3] ~= worker_id or number(epoch) <= floor or (slot ~= 'starting' and slot ~= 'running') then
  return { 'STALE', now, f[3], number(f[1]), number(f[6]) }
end
local acked, released, appended = number(f[7]), number(f[8]), number(f[13])
after = number(after)
if not fits(live, after, mark, acked, f[12], appended) then
  return { 'STALE', now, '', 0, 0 }
end

if f[4] == '' then
  write_slot(worker_id, live, epoch, 'running')
  call('HDEL', key, 'note', 'stalled')
  call('HSET', key, 'active', worker_id, 'claimed_at', now)
  leave_waiting(live, { waits = f[11] ~= '' and f[11] or nil }) -- Given up too early, it goes on where it is.
  follow_start(f[14], now - f[15])
end
-- No cursor goes back: what was released stays so, or a late pull would let a planned move repeat it.
after = math.max(after, acked)
if after > released then
  -- The mark fits, so the runtime has the item: it is the release that the store has forgotten.
  local item = call('LINDEX', prefix .. 'input:' .. live, after - acked - 1)
  local ends = string.find(item, '^[TCIJ]') or (f[5] == 'closing' and after == appended)
  call('HSET', key, 'released', after, 'at_boundary', ends and '1' or '')
end
local pull_no = math.max(number(f[6]), number(call('HGET', KEYS[1], 'pull_base') or 0)) + 1
call('HSET', key, 'controller', controller, 'pull_no', pull_no)
local data = call('HMGET', prefix .. 'data:' .. live, 'metadata', 'config', 'saved')
return { 'PULLING', now, pull_no, after, f[9], f[10] or '', data[1] or '', data[2] or '', data[3] or '' }
