-- waiting: lives whose recovery found no free slot, by class and time. A score is class * 2^42 + time in ms.
local WAITING_CLASS = 4398046511104

-- Slots came free in the Pool: the first ones waiting for it are due now, and their backoff is over.
local function wake_waiting(pool, count)
  if count < 1 then
    return
  end
  local first = call('ZRANGE', prefix .. 'waiting:' .. pool, 0, count - 1, 'WITHSCORES')
  for i = 1, #first, 2 do
    look_by(math.floor(first[i + 1] / WAITING_CLASS), first[i], now)
    call('HDEL', prefix .. 'live:' .. first[i], 'tries')
  end
end

-- The live leaves this Pool's queue. If the Pool has a free slot, wake the next live: this one may have been woken for it.
local function pass_on(pool)
  if call('EXISTS', prefix .. 'free:' .. pool) == 1 then
    wake_waiting(pool, 1)
  end
end

-- The live waits no more. `r` is its fence, with `waits`.
local function leave_waiting(live, r)
  if not r.waits then
    return
  end
  for pool in string.gmatch(r.waits, '%S+') do
    call('ZREM', prefix .. 'waiting:' .. pool, live)
    pass_on(pool)
  end
  call('HDEL', prefix .. 'live:' .. live, 'waits')
  r.waits, r.waiting = nil, nil
  write_fence(live, r)
end

-- The live waits for a free slot in these Pools and in no other; it keeps the place in line that it has.
local function join_waiting(live, r, pools)
  local score
  local before = r.waits or ''
  for pool in string.gmatch(before, '%S+') do
    score = score or call('ZSCORE', prefix .. 'waiting:' .. pool, live)
    call('ZREM', prefix .. 'waiting:' .. pool, live)
  end
  score = score or r.priority * WAITING_CLASS + now
  for pool in string.gmatch(pools, '%S+') do
    call('ZADD', prefix .. 'waiting:' .. pool, score, live)
  end
  call('HSET', prefix .. 'live:' .. live, 'waits', pools)
  r.waits, r.waiting = pools, ''
  write_fence(live, r)
  for pool in string.gmatch(before, '%S+') do
    if not string.find(' ' .. pools .. ' ', ' ' .. pool .. ' ', 1, true) then
      pass_on(pool)
    end
  end
end
