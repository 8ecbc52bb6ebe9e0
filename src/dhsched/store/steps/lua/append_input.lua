-- append_input: accept items, each by (producer, n) from a stream or by request id. Accepted means stored. Many lives
-- share one call, each item as if it were alone, in the order in which they stand there.
--
-- `through` is the pull that waits for the item, where the appender serves it: Worker, epoch, pull number, the last item
-- that it was passed and that item's mark. If release_input, as the next step, would release this item and nothing else,
-- the item is released here, and its mark is returned. A hold, a suspect or an interrupt is left to release_input.
--
-- USES     clock agenda item
-- KEYS     cell
-- ARGV     controller, credit, pending_max, producers_max, recent_min, recent_ms, recent_max, ack_wait_ms
-- EACH     live, item, producer, n, request, through
-- RETURNS  APPENDED seq [mark]
--          DUPLICATE
--          GAP last
--          CLOSING, ENDED, NOT_FOUND
--          TOO_MANY_PENDING pending
--          TOO_MANY_PRODUCERS producers
local controller, credit, pending_max, producers_max, recent_min, recent_ms, recent_max, ack_wait_ms = unpack(ARGV, 1, 8)

-- To whoever holds the pull, unless it appends itself: then it asks for the item anyway.
local function wake(holder, live)
  if holder ~= '' and holder ~= controller then
    call('SPUBLISH', prefix .. 'infer:' .. holder, live)
  end
end

-- Whether the pull has everything before the next item, and may have this one: the fence of release_input.
local function takes(live, through, f, appended, pending)
  local selected, epoch, pull_no = f[7], f[8], f[9]
  if appended == 0 or number(f[10]) ~= appended or pending >= number(credit) or f[12] ~= '' or f[13] ~= ''
    or f[11] ~= selected or number(epoch) <= floor then
    return false
  end
  local last = pending == 0 and (f[14] or '') or string.sub(call('LINDEX', prefix .. 'input:' .. live, -1), 2, 9)
  return through == selected .. ' ' .. epoch .. ' ' .. pull_no .. ' ' .. whole(appended) .. ' ' .. last
end

local function append(live, item, producer, n, request, through)
  local sign = string.sub(item, 1, 1)
  local key = prefix .. 'live:' .. live
  local from = producer ~= '' and 'from:' .. producer
  local f
  if through == '' then
    f = call('HMGET', key, 'state', 'appended', 'acked', 'controller', 'priority', from or 'state')
  else
    f = call('HMGET', key, 'state', 'appended', 'acked', 'controller', 'priority', from or 'state', 'selected', 'epoch',
      'pull_no', 'released', 'active', 'move_hold', 'suspect', 'acked_mark')
  end
  local state = f[1]
  if not state then
    return { 'NOT_FOUND' }
  elseif state == 'ended' then
    return { 'ENDED' }
  end

  local recent = not from and prefix .. 'recent:' .. live
  local last, known = 0, from and f[6]
  if from then
    n = number(n)
    last = known and number(string.match(known, '^%d+')) or 0
    if n <= last then
      wake(f[4], live) -- Who asks again did not hear that it was stored, and perhaps nobody did.
      return { 'DUPLICATE' }
    end
  elseif call('ZSCORE', recent, request) then
    wake(f[4], live)
    return { 'DUPLICATE' }
  end
  if state == 'closing' then
    return { 'CLOSING' }
  elseif from and n > last + 1 then
    return { 'GAP', last }
  end
  local appended, acked = number(f[2]), number(f[3])
  local pending = appended - acked
  if sign ~= 'I' and pending >= number(pending_max) then
    return { 'TOO_MANY_PENDING', pending }
  end

  -- Time is read only where it decides: a new producer, a request id, a queue that was empty.
  if pending == 0 or not known then
    now = now or clock()
  end
  local seq = appended + 1
  if from and not known then
    local rest, count, oldest, lowest, since = call('HGETALL', key), 0, nil, nil, nil
    for i = 1, #rest, 2 do
      if string.sub(rest[i], 1, 5) == 'from:' then
        local at, first = string.match(rest[i + 1], '(%d+) (%d+)$')
        count = count + 1
        if not lowest or number(at) < lowest then
          oldest, lowest, since = rest[i], number(at), first
        end
      end
    end
    if count >= number(producers_max) then
      -- One more than fit takes the place of the one that was silent longest, if that has been here long.
      if now - since < number(recent_ms) then
        return { 'TOO_MANY_PRODUCERS', count }
      end
      call('HDEL', key, oldest)
    end
  elseif not from then
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
  local numbered = from
    and whole(n) .. ' ' .. whole(seq) .. ' ' .. (known and string.match(known, '%d+$') or whole(now))

  local passed = through ~= '' and sign ~= 'I' and takes(live, through, f, appended, pending)
  if sign == 'I' then
    -- Everything before it that is not acked is dropped, released or not; the interrupt is next.
    local g = call('HMGET', key, 'released', 'config_next', 'move_hold', 'epoch', 'note', 'stalled')
    local released, input = number(g[1]), prefix .. 'input:' .. live
    if number(g[2]) > acked then
      -- It passed over a config item, so it brings the configuration itself: nothing else would.
      local config = config_of(call('LINDEX', input, g[2] - acked - 1))
      item = 'J' .. string.sub(item, 2, 9) .. #config .. ':' .. config .. string.sub(item, 10)
      call('HSET', key, 'config_next', seq)
    end
    if pending > 0 then
      call('HSET', key, 'acked_mark', string.sub(call('LINDEX', input, -1), 2, 9))
    end
    call('DEL', input)
    -- It is no progress of the runtime: a standstill that was noted goes on.
    local stood, stands = g[4] .. ' ' .. whole(acked), g[4] .. ' ' .. whole(seq - 1)
    local at = string.match(g[5] or '', '^' .. stood .. '( %d+)$')
    if at then
      call('HSET', key, 'note', stands .. at)
    end
    if g[6] == stood then
      call('HSET', key, 'stalled', stands)
    end
    if released < seq - 1 then
      call('HSET', key, 'at_boundary', '')
    end
    call('HSET', key, 'appended', seq, 'released', math.max(released, seq - 1), 'acked', seq - 1, 'suspect', '')
    if pending > 0 then
      call('HINCRBY', key, 'dropped_interrupt', pending)
    end
    if g[3] ~= '' and g[3] ~= 'next' then
      call('HSET', key, 'move_hold', seq)
    end
    if from then
      call('HSET', key, from, numbered)
    end
  else
    local ends = (sign == 'T' or sign == 'C') and '1' or ''
    if from and passed then
      call('HSET', key, 'appended', seq, from, numbered, 'released', seq, 'at_boundary', ends)
    elseif passed then
      call('HSET', key, 'appended', seq, 'released', seq, 'at_boundary', ends)
    elseif from then
      call('HSET', key, 'appended', seq, from, numbered)
    else
      call('HSET', key, 'appended', seq)
    end
    if sign == 'c' or sign == 'C' then
      call('HSET', key, 'config_next', seq)
    end
  end
  call('RPUSH', prefix .. 'input:' .. live, item)
  if pending == 0 then
    look_by(f[5], live, now + ack_wait_ms)
  end
  if passed then
    return { 'APPENDED', seq, string.sub(item, 2, 9) }
  end
  wake(f[4], live)
  return { 'APPENDED', seq }
end

local replies = { 0 }
for i = 9, #ARGV, 6 do
  replies[#replies + 1] = append(unpack(ARGV, i, i + 5))
end
replies[1] = now or 0
return replies
