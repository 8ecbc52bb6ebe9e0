-- pull: the selected Worker takes up its generation, or comes back to it (paper, algorithm 2).
--
-- USES     clock now agenda waiting worker slot item
-- KEYS     cell
-- ARGV     live, worker_id, epoch, after, controller, mark
-- RETURNS  PULLING pull_no after digital_id room metadata config saved
--                                 older pulls of this generation are dead
--          STALE worker epoch pull_no    also for a number that this store never issued
--          ENDED
local live, worker_id, epoch, after, controller, mark = unpack(ARGV)

local key = prefix .. 'live:' .. live
local f = call('HMGET', key, 'epoch', 'issued', 'selected', 'active', 'state', 'pull_no', 'acked', 'released',
  'digital_id', 'room', 'waits', 'acked_mark', 'appended')
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
