-- set_worker: an operator's or the Worker's own request: cordon, uncordon, drain, undrain, exit, reap.
--
-- USES     clock now agenda record waiting worker slot wake_own live vacate gone
-- KEYS     cell
-- ARGV     worker_id, verb, reap_ms, walk_max
-- RETURNS  WORKER_SET mode gone
--          NOT_FOUND
--          MOOT      not to be reaped: not lost for long enough, or lives are still on it
local worker_id, verb, reap_ms, walk_max = unpack(ARGV)

local w = worker(worker_id)
if not w or w.gone then
  return { 'NOT_FOUND', now }
end
local key = prefix .. 'worker:' .. worker_id

if verb == 'reap' then
  local lost_at = call('HGET', key, 'lost_at')
  if not w.lost or now < lost_at + reap_ms then
    return { 'MOOT', now }
  end
  for _, slot in ipairs(slot_table(worker_id)) do
    if OWNED[slot.state] then
      return { 'MOOT', now }
    end
  end
end
if verb == 'exit' or verb == 'reap' then
  make_gone(worker_id)
  return { 'WORKER_SET', now, w.mode, 1 }
end

local TRANSITIONS = {
  cordon = { ready = 'cordoned' },
  uncordon = { cordoned = 'ready' },
  drain = { ready = 'draining', cordoned = 'draining' },
  undrain = { draining = 'ready' },
}
local mode = TRANSITIONS[verb][w.mode]
if not mode then
  return { 'WORKER_SET', now, w.mode, 0 }
end
if verb == 'undrain' then
  for _, slot in ipairs(slot_table(worker_id)) do
    if OWNED[slot.state] then
      clear_move(slot.live, read_live(slot.live))
    end
  end
end
w.mode = mode
call('HSET', key, 'mode', mode)
if placeable(w) then
  enter_free(worker_id, w, walk_max)
else
  touch(worker_id)
  write_free(worker_id, w)
  clear_moves_to(worker_id)
end
return { 'WORKER_SET', now, mode, 0 }
