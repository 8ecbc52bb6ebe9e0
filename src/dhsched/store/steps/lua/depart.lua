-- depart: the Worker does not run `live@num`, and in this boot never will again.
--
-- USES     clock now agenda record waiting worker slot live vacate
-- KEYS     cell
-- ARGV     worker_id, live, num, reason, lease_ms, backoff_max_ms
-- RETURNS  DEPARTED was
--          NOTHING
local worker_id, live, num, reason, lease_ms, backoff_max_ms = unpack(ARGV)

local was = slot_of(worker_id, live, num)
if not was or was == 'vacant' then
  return { 'NOTHING', now }
end
if was == 'departing' then
  write_slot(worker_id, live, num, nil)
elseif was == 'reserved' then
  clear_move(live, read_live(live), true)
  write_slot(worker_id, live, num, nil)
else
  local class, starts, moving, claimed_at = vacate(worker_id, live, num)
  if reason ~= '' then
    call('HSET', prefix .. 'data:' .. live, 'reason', reason) -- Too long for the record, which must stay compact.
  end
  if claimed_at and now - claimed_at >= number(backoff_max_ms) then
    starts = 0 -- It lived for longer than it could be made to wait.
    call('HDEL', prefix .. 'live:' .. live, 'starts')
  end
  -- A runtime that dies before its first ack, again and again, is not placed again at once.
  local wait = (starts == 0 or moving) and 0 or backoff_ms(starts - 1, lease_ms, backoff_max_ms)
  look_at(class, live, now + wait)
end
return { 'DEPARTED', now, was }
