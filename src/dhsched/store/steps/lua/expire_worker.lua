-- expire_worker: call a Worker lost that has not reported since `beat`. Its lives go on the agenda; its slots stay.
--
-- USES     clock now agenda record waiting worker slot live
-- KEYS     cell
-- ARGV     worker_id, beat
-- RETURNS  EXPIRED lives
--          ALIVE beat    it has reported since
--          NOTHING       no such Worker, or lost or gone already
local worker_id, beat = unpack(ARGV)

local w = worker(worker_id)
if not w or w.gone or w.lost then
  return { 'NOTHING', now }
end
if w.beat ~= number(beat) then
  return { 'ALIVE', now, w.beat }
end
clear_moves_to(worker_id)
w.lost = true
call('HSET', prefix .. 'worker:' .. worker_id, 'lost', '1', 'lost_at', now)
touch(worker_id)
write_free(worker_id, w)
local lives = 0
for _, slot in ipairs(slot_table(worker_id)) do
  if OWNED[slot.state] then
    lives = lives + 1
    look_by(call('HGET', prefix .. 'live:' .. slot.live, 'priority'), slot.live, now)
  end
end
return { 'EXPIRED', now, lives }
