-- look: decide from the record what must happen now to a live that is due. The first rule that matches decides, and
-- each raises the live's place on the agenda, which is lease and backoff in one. Many lives share one call, each as if it
-- were alone.
--
-- USES     clock now agenda record waiting worker slot live lifetime needs finish
-- KEYS     cell
-- ARGV     claim_wait_ms, ack_wait_ms, lease_ms, backoff_max_ms, ended_ttl_ms
-- EACH     live
-- RETURNS  SWEPT
--          LIFETIME_OVER reason state
--          RECOVER epoch need worker digital_id priority tries
--          WAKE
--          IDLE
--          LATER at
--          NOTHING
local claim_wait_ms, ack_wait_ms, lease_ms, backoff_max_ms, ended_ttl_ms = unpack(ARGV, 1, 5)

local function look(live)
  rev = nil -- A live that changes a Worker takes a revision of its own, as if it were alone.
  local key = prefix .. 'live:' .. live
  local r = read_live(live)
  if not r then
    return { 'NOTHING' }
  end
  local class = r.priority
  local at = number(call('ZSCORE', prefix .. 'agenda:' .. class, live) or nil)
  local needed = (not at or (at > now and not r.tries)) and needs(live, r)
  if not at and not needed then
    return { 'NOTHING' } -- Without an entry only a new term makes a live need anything.
  elseif at and at > now and needed ~= 'floor' then
    -- A new term does not wait for the time that an old one set; only for a lease on the recovery itself.
    return { 'LATER', at }
  end

  if r.state == 'ended' then
    local sweep_at = r.ended_at + ended_ttl_ms
    if now < sweep_at then
      look_at(class, live, sweep_at)
      return { 'LATER', sweep_at }
    end
    -- The numbers of this id are not issued again: not even if the id is created anew.
    local base = number(call('HGET', KEYS[1], 'epoch_base') or 0)
    call('HSET', KEYS[1], 'epoch_base', math.max(base, number(r.issued)))
    look_never(class, live)
    call('ZREM', prefix .. 'lives', live)
    call('ZREM', prefix .. 'ended', live)
    call('DEL', key, prefix .. 'data:' .. live, prefix .. 'input:' .. live, prefix .. 'recent:' .. live, prefix .. 'dead:' .. live, prefix .. 'history:' .. live,
      prefix .. 'emits:' .. live, prefix .. 'logs:' .. live, prefix .. 'device:' .. live)
    return { 'SWEPT' }
  end

  -- How much was appended, and when a look saw that first.
  if number(string.match(r.seen or '', '^%d+')) ~= r.appended then
    r.seen = whole(r.appended) .. ' ' .. whole(now)
    call('HSET', key, 'seen', r.seen)
  end
  local over = lifetime_over(r)
  if over then
    -- As `end after pending`: input that waits is still consumed, and a look that follows goes on.
    call('HSET', key, 'expired', over)
    if r.acked < r.appended then
      r.state = 'closing'
      write_fence(live, r)
      look_at(class, live, now)
      return { 'LIFETIME_OVER', over, 'closing' }
    end
    finish(live, r, ended_ttl_ms)
    wake_controller(live, r.controller)
    return { 'LIFETIME_OVER', over, 'ended' }
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
    return { 'RECOVER', number(r.epoch), need, r.selected, r.digital_id, number(class), tries + 1 }
  end

  local need = needs(live, r)
  if need then
    return recover(need)
  end
  leave_waiting(live, r)
  if r.tries then
    call('HDEL', key, 'tries')
    r.tries = nil
  end

  -- How long the live may stand still as it is now; nil when standing still is fine.
  local period
  if r.unclaimed then
    period = number(claim_wait_ms)
  elseif r.released > r.acked or (r.appended > r.released and not held(r)) then
    period = number(ack_wait_ms)
  end
  if not period then
    local next_at = by_lifetime(r, expires)
    if next_at then
      look_at(class, live, next_at)
      return { 'LATER', next_at }
    end
    look_never(class, live)
    return { 'IDLE' }
  end

  -- Nothing is wrong but time. The first look at a standstill only wakes; a second, a full period later, recovers.
  local noted, since = string.match(r.note or '', '^(.*) (%d+)$')
  if noted ~= progress(r) then
    call('HSET', key, 'note', progress(r) .. ' ' .. whole(now))
    look_at(class, live, by_lifetime(r, soonest(now + period)))
    wake_controller(live, r.controller)
    if r.unclaimed then
      wake_worker(r.selected, worker(r.selected))
    end
    return { 'WAKE' }
  end
  local ripe = since + period
  if now < ripe then
    ripe = by_lifetime(r, soonest(ripe))
    look_at(class, live, ripe)
    return { 'LATER', ripe }
  end
  call('HSET', key, 'stalled', progress(r))
  return recover('stalled')
end

local replies = { now }
for i = 6, #ARGV, 1 do
  replies[#replies + 1] = look(unpack(ARGV, i, i + 0))
end
return replies
