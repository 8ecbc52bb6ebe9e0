-- look: decide from the record what must happen now to a live that is due. The first rule that matches decides, and
-- each raises the live's place on the agenda, which is lease and backoff in one.
--
-- USES     clock now agenda waiting worker slot live needs
-- KEYS     cell
-- ARGV     live, claim_wait_ms, ack_wait_ms, lease_ms, backoff_max_ms, ended_ttl_ms
-- RETURNS  SWEPT
--          RECOVER epoch need worker digital_id priority tries
--          WAKE
--          IDLE
--          LATER at
--          NOTHING
local live, claim_wait_ms, ack_wait_ms, lease_ms, backoff_max_ms, ended_ttl_ms = unpack(ARGV)

local key = prefix .. 'live:' .. live
local r = read_live(live)
if not r then
  return { 'NOTHING', now }
end
local class = r.priority
local at = number(call('ZSCORE', prefix .. 'agenda:' .. class, live) or nil)
local needed = (not at or (at > now and not r.tries)) and needs(live, r)
if not at and not needed then
  return { 'NOTHING', now } -- Without an entry only a new term makes a live need anything.
elseif at and at > now and needed ~= 'floor' then
  -- A new term does not wait for the time that an old one set; only for a lease on the recovery itself.
  return { 'LATER', now, at }
end

if r.state == 'ended' then
  local sweep_at = r.ended_at + ended_ttl_ms
  if now < sweep_at then
    look_at(class, live, sweep_at)
    return { 'LATER', now, sweep_at }
  end
  -- The numbers of this id are not issued again: not even if the id is created anew.
  local base = number(call('HGET', KEYS[1], 'epoch_base') or 0)
  call('HSET', KEYS[1], 'epoch_base', math.max(base, number(r.issued)))
  look_never(class, live)
  call('ZREM', prefix .. 'lives', live)
  call('ZREM', prefix .. 'ended', live)
  call('DEL', key, prefix .. 'data:' .. live, prefix .. 'input:' .. live, prefix .. 'recent:' .. live, prefix .. 'dead:' .. live, prefix .. 'history:' .. live)
  return { 'SWEPT', now }
end

if r.move_expires and now >= number(r.move_expires) then
  clear_move(live, r)
end
local expires = number(r.move_expires or nil)
local function soonest(when)
  return expires and math.min(when, expires) or when
end

local function recover(need)
  local tries = number(r.tries or 0)
  call('HSET', key, 'tries', tries + 1)
  look_at(class, live, soonest(now + backoff_ms(tries, lease_ms, backoff_max_ms)))
  return { 'RECOVER', now, number(r.epoch), need, r.selected, r.digital_id, number(class), tries + 1 }
end

local need = needs(live, r)
if need then
  return recover(need)
end
leave_waiting(live, r)
call('HDEL', key, 'tries')
r.tries = nil

-- How long the live may stand still as it is now; nil when standing still is fine.
local appended, released, acked = number(r.appended or 0), number(r.released or 0), number(r.acked or 0)
local period
if not r.active then
  period = number(claim_wait_ms)
elseif released > acked or (appended > released and not held(r)) then
  period = number(ack_wait_ms)
end
if not period then
  if expires then
    look_at(class, live, expires)
    return { 'LATER', now, expires }
  end
  look_never(class, live)
  return { 'IDLE', now }
end

-- Nothing is wrong but time. The first look at a standstill only wakes; a second, a full period later, recovers.
local noted, since = string.match(r.note or '', '^(.*) (%d+)$')
if noted ~= cursors(r) then
  call('HSET', key, 'note', cursors(r) .. ' ' .. whole(now))
  look_at(class, live, soonest(now + period))
  wake_controller(live, r.controller)
  if not r.active then
    wake_worker(r.selected, worker(r.selected))
  end
  return { 'WAKE', now }
end
local ripe = since + period
if now < ripe then
  look_at(class, live, soonest(ripe))
  return { 'LATER', now, soonest(ripe) }
end
call('HSET', key, 'stalled', cursors(r))
return recover('stalled')
