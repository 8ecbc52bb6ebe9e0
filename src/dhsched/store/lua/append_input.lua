-- append_input: accept one item, by (producer, n) from a stream or by request id. Accepted means stored.
--
-- USES     agenda
-- KEYS     cell
-- ARGV     live, kind, item, payload, producer, n, request, pending_max, producers_max, recent_min, recent_ms,
--          recent_max, ack_wait_ms
-- RETURNS  APPENDED seq
--          DUPLICATE
--          GAP last
--          CLOSING, ENDED, NOT_FOUND
--          TOO_MANY_PENDING pending
--          TOO_MANY_PRODUCERS producers
local live, kind, item, payload, producer, n, request, pending_max, producers_max, recent_min, recent_ms, recent_max,
  ack_wait_ms = unpack(ARGV)

local key = prefix .. 'live:' .. live
local f = call('HMGET', key, 'state', 'appended', 'acked', 'controller', 'priority')
local state, appended, acked = f[1], number(f[2] or 0), number(f[3] or 0)
if not state then
  return { 'NOT_FOUND', now }
elseif state == 'ended' then
  return { 'ENDED', now }
end

local producers, recent = prefix .. 'producers:' .. live, prefix .. 'recent:' .. live
local last, known = 0, nil
if producer ~= '' then
  n = number(n)
  known = call('HGET', producers, producer)
  last = known and number(string.match(known, '^%d+')) or 0
  if n <= last then
    return { 'DUPLICATE', now }
  end
elseif call('ZSCORE', recent, request) then
  return { 'DUPLICATE', now }
end
if state == 'closing' then
  return { 'CLOSING', now }
elseif producer ~= '' and n > last + 1 then
  return { 'GAP', now, last }
end
local pending = appended - acked
if kind ~= 'interrupt' and pending >= number(pending_max) then
  return { 'TOO_MANY_PENDING', now, pending }
end

if producer ~= '' then
  if not known and call('HLEN', producers) >= number(producers_max) then
    -- One more than fit takes the place of the longest silent, if that has been silent long.
    local oldest, seen
    local flat = call('HGETALL', producers)
    for i = 1, #flat, 2 do
      local at = number(string.match(flat[i + 1], '%d+$'))
      if not seen or at < seen or (at == seen and flat[i] < oldest) then
        oldest, seen = flat[i], at
      end
    end
    if now - seen < number(recent_ms) then
      return { 'TOO_MANY_PRODUCERS', now, #flat / 2 }
    end
    call('HDEL', producers, oldest)
  end
  call('HSET', producers, producer, n .. ' ' .. now)
else
  call('ZADD', recent, now, request)
  local count = call('ZCARD', recent)
  -- Two old ones may leave, so the memory shrinks faster than it grows.
  for _ = 1, 2 do
    if count > number(recent_min) then
      local oldest = call('ZRANGE', recent, 0, 0, 'WITHSCORES')
      if count > number(recent_max) or now - oldest[2] >= number(recent_ms) then
        call('ZREM', recent, oldest[1])
        count = count - 1
      end
    end
  end
end

local seq = appended + 1
if kind == 'interrupt' then
  -- Everything before it that is not acked is dropped, released or not; the interrupt is next.
  local g = call('HMGET', key, 'released', 'config_seq', 'move_hold')
  local released = number(g[1] or 0)
  if number(g[2] or 0) > acked then
    -- It passed over a config item, so it brings the configuration itself: nothing else would.
    local config = call('HGET', prefix .. 'data:' .. live, 'config') or ''
    item = 'J' .. #config .. ':' .. config .. payload
    call('HSET', key, 'config_seq', seq)
  end
  call('DEL', prefix .. 'input:' .. live)
  if released < seq - 1 then
    call('HDEL', key, 'at_boundary')
  end
  call('HDEL', key, 'suspect')
  call('HSET', key, 'appended', seq, 'released', math.max(released, seq - 1), 'acked', seq - 1)
  if pending > 0 then
    call('HINCRBY', key, 'dropped_interrupt', pending)
  end
  if g[3] and g[3] ~= 'next' then
    call('HSET', key, 'move_hold', seq)
  end
else
  call('HSET', key, 'appended', seq)
  if kind == 'config' then
    call('HSET', prefix .. 'data:' .. live, 'config', payload)
    call('HSET', key, 'config_seq', seq)
  end
end
call('RPUSH', prefix .. 'input:' .. live, item)
if pending == 0 then
  look_by(f[5], live, now + ack_wait_ms)
end
if f[4] and f[4] ~= '' then
  call('SPUBLISH', prefix .. 'infer:' .. f[4], live)
end
return { 'APPENDED', now, seq }
