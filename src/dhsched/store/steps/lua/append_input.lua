-- append_input: accept items, each by (producer, n) from a stream or by request id. Accepted means stored. Many lives
-- share one call, each item as if it were alone, in the order in which they stand there.
--
-- `source` is a producer and n, or a request id. `through` is the pull that waits for the item, where the appender serves
-- it: Worker, epoch, pull number, the last item that it was passed and that item's mark. If release_input, as the next
-- step, would release this item and nothing else, the item is released here, and its mark is returned. A hold, a suspect
-- or an interrupt is left to release_input.
--
-- USES     clock agenda record item
-- KEYS     cell
-- ARGV     controller, credit, pending_max, producers_max, recent_min, recent_ms, recent_max, ack_wait_ms
-- EACH     live, item, source, through
-- RETURNS  APPENDED seq [mark] [dropped]; without a mark only the number
--          DUPLICATE [seq]
--          GAP last
--          CLOSING, ENDED, NOT_FOUND
--          TOO_MANY_PENDING pending
--          TOO_MANY_PRODUCERS producers
local controller, credit, pending_max, producers_max, recent_min, recent_ms, recent_max, ack_wait_ms = unpack(ARGV, 1, 8)
credit, pending_max = number(credit), number(pending_max)

-- To whoever holds the pull, unless it appends itself: then it asks for the item anyway. `holder` is nil where it was not
-- read yet.
local function wake(key, live, holder)
  if holder == nil then
    holder = call('HGET', key, 'controller')
  end
  if holder and holder ~= controller then
    call('SPUBLISH', prefix .. 'infer:' .. holder, live)
  end
end

-- Whether the pull has everything before the next item, and may have this one: the fence of release_input. The cursors are
-- texts.
local function takes(live, through, selected, fence, appended, released, acked, acked_mark)
  if appended == '0' or released ~= appended or appended - acked >= credit then
    return false
  end
  local epoch, pull_no = match(fence, '^(%d+) (%d+) open$')
  if not epoch then
    local r = read_fence(fence)
    if r.unclaimed or r.hold or r.suspect then
      return false
    end
    epoch, pull_no = r.epoch, r.pull_no
  end
  local last = appended == acked and acked_mark or sub(call('LINDEX', prefix .. 'input:' .. live, -1), 2, 9)
  return through == selected .. ' ' .. epoch .. ' ' .. pull_no .. ' ' .. appended .. ' ' .. last
    and number(epoch) > floor
end

local function append(live, item, source, through)
  local sign = sub(item, 1, 1)
  local key = prefix .. 'live:' .. live
  local producer, n_text = match(source, '^(%S+) (%d+)$')
  local from = producer and 'from:' .. producer
  local f, holder
  if through == '' then
    f = call('HMGET', key, 'fence', 'cursors', 'priority', from or 'fence', 'controller')
    holder = f[5]
  else
    f = call('HMGET', key, 'fence', 'cursors', 'priority', from or 'fence', 'selected')
  end
  local fence = f[1]
  if not fence then
    return { 'NOT_FOUND' }
  end
  local state = sub(fence, -5) == ' open' and 'open' or match(fence, '%a+')
  if state == 'ended' then
    return { 'ENDED' }
  end

  local recent = not from and prefix .. 'recent:' .. live
  local last, known, since = 0, from and f[4], nil
  local n = from and number(n_text)
  if from then
    if known then
      last, since = match(known, '^(%d+) %d+ (%d+)$')
      last = number(last)
    end
    if n <= last then
      wake(key, live, holder) -- Who asks again did not hear that it was stored, and perhaps nobody did.
      return n == last and { 'DUPLICATE', number(match(known, ' (%d+) ')) } or { 'DUPLICATE' }
    end
  elseif call('ZSCORE', recent, source) then
    wake(key, live, holder)
    return { 'DUPLICATE' }
  end
  if state == 'closing' then
    return { 'CLOSING' }
  elseif from and n > last + 1 then
    return { 'GAP', last }
  end
  local appended, released, acked, config_next, at_boundary, acked_mark = split_cursors(f[2])
  local pending = appended == acked and 0 or appended - acked
  if sign ~= 'I' and pending >= pending_max then
    return { 'TOO_MANY_PENDING', pending }
  end

  -- Time is read only where it decides: a new producer, a request id, a queue that was empty.
  if pending == 0 or not known then
    now = now or clock()
  end
  local seq = appended + 1
  local seq_text = whole(seq)
  if from and not known then
    local rest, count, oldest, lowest, oldest_since = call('HGETALL', key), 0, nil, nil, nil
    for i = 1, #rest, 2 do
      if sub(rest[i], 1, 5) == 'from:' then
        local at, first = match(rest[i + 1], '(%d+) (%d+)$')
        count = count + 1
        if not lowest or number(at) < lowest then
          oldest, lowest, oldest_since = rest[i], number(at), first
        end
      end
    end
    if count >= number(producers_max) then
      -- One more than fit takes the place of the one that was silent longest, if that has been here long.
      if now - oldest_since < number(recent_ms) then
        return { 'TOO_MANY_PRODUCERS', count }
      end
      call('HDEL', key, oldest)
    end
    since = whole(now)
  elseif not from then
    call('ZADD', recent, now, source)
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

  local input = prefix .. 'input:' .. live
  local passed = through ~= '' and sign ~= 'I'
    and takes(live, through, f[5], fence, appended, released, acked, acked_mark)
  if sign == 'I' then
    -- Everything before it that is not acked is dropped, released or not; the interrupt is next.
    local g, r = call('HMGET', key, 'note', 'stalled', 'interrupted'), read_fence(fence)
    acked, released = number(acked), number(released)
    if number(config_next) > acked then
      -- It passed over a config item, so it brings the configuration itself: nothing else would.
      local config = config_of(call('LINDEX', input, config_next - acked - 1))
      item = 'J' .. sub(item, 2, 9) .. #config .. ':' .. config .. sub(item, 10)
      config_next = seq_text
    end
    if pending > 0 then
      acked_mark = sub(call('LINDEX', input, -1), 2, 9)
      call('HINCRBY', key, 'dropped_interrupt', pending)
    end
    call('DEL', input)
    -- It is no progress of the runtime: a standstill that was noted goes on.
    local stood, stands = r.epoch .. ' ' .. whole(acked), r.epoch .. ' ' .. whole(seq - 1)
    local at = match(g[1] or '', '^' .. stood .. '( %d+)$')
    if at then
      call('HSET', key, 'note', stands .. at)
    end
    if g[2] == stood then
      call('HSET', key, 'stalled', stands)
    end
    if released < seq - 1 then
      at_boundary = '0'
    end
    -- If the interrupt before is dropped too, what that dropped and what this drops is one range.
    local before, after = match(g[3] or '', '^(%d+) (%d+)$')
    after = before and number(before) > acked and after or whole(acked)
    call('HSET', key, 'interrupted', seq_text .. ' ' .. after)
    released, acked = whole(math.max(released, seq - 1)), appended
    r.suspect = nil
    if r.hold and r.hold ~= 'next' then
      r.hold = seq_text
    end
    write_fence(live, r)
  else
    if passed then
      released, at_boundary = seq_text, (sign == 'T' or sign == 'C') and '1' or '0'
    end
    if sign == 'c' or sign == 'C' then
      config_next = seq_text
    end
  end
  local cursors = join_cursors(seq_text, released, acked, config_next, at_boundary, acked_mark)
  if from then
    call('HSET', key, 'cursors', cursors, from, n_text .. ' ' .. seq_text .. ' ' .. since)
  else
    call('HSET', key, 'cursors', cursors)
  end
  call('RPUSH', input, item)
  if pending == 0 then
    look_by(f[3], live, now + ack_wait_ms)
  end
  if passed then
    return { 'APPENDED', seq, sub(item, 2, 9) }
  end
  wake(key, live, holder)
  return sign == 'I' and { 'APPENDED', seq, '', pending } or seq
end

local replies = { 0 }
for i = 9, #ARGV, 4 do
  replies[#replies + 1] = append(unpack(ARGV, i, i + 3))
end
replies[1] = now or 0
return replies
