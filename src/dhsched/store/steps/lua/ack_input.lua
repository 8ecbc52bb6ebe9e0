-- ack_input: the runtime has consumed everything up to `n`; its small state moves with the cursor. Many lives share one
-- call, each as if it were alone. `saved` is `=` and the state, or empty where it did not change.
--
-- USES     clock item
-- RARELY   agenda waiting worker slot live finish: finish, read_live, leave_waiting
-- KEYS     cell
-- ARGV     ended_ttl_ms
-- EACH     live, worker_id, epoch, n, saved, mark
-- RETURNS  ACKED acked ended
--          AHEAD released    an ack of something that was not released
--          STALE worker epoch pull_no
--          ENDED
local ended_ttl_ms = ARGV[1]

-- The last config item among those acked is in force. The configuration before it stays to fall back to until the next
-- ack: only that shows that a runtime can live with the new one.
local function configure(live, key, items)
  local data = prefix .. 'data:' .. live
  local config, fallback
  for _, item in ipairs(items) do
    local brought = config_of(item)
    fallback = brought and (config or call('HGET', data, 'config') or '')
    config = brought or config
  end
  if config then
    call('HSET', data, 'config', config)
  end
  if fallback then
    call('HSET', data, 'fallback', fallback)
  else
    call('HDEL', data, 'fallback')
  end
  call('HSET', key, 'fallback', fallback and '1' or '')
end

local function ack(live, worker_id, epoch, n, saved, mark)
  local key = prefix .. 'live:' .. live
  local f = call('HMGET', key, 'epoch', 'selected', 'active', 'pull_no', 'state', 'appended', 'released', 'acked',
    'acked_mark', 'suspect', 'first_ack_at', 'waits', 'config_next', 'fallback')
  if not f[1] then
    return { 'STALE', '', 0, 0 }
  elseif f[5] == 'ended' then
    return { 'ENDED' }
  elseif f[1] ~= epoch or f[2] ~= worker_id or f[3] ~= worker_id or number(epoch) <= floor then
    return { 'STALE', f[2], number(f[1]), number(f[4]) }
  end
  n = number(n)
  local appended, released, acked = number(f[6]), number(f[7]), number(f[8])
  -- One command reads the item that is named and takes it out with those before it.
  local input = prefix .. 'input:' .. live
  local items = n > acked and n <= released and call('LPOP', input, n - acked)
  if not fits(live, n, mark, acked, f[9], appended, items and items[#items]) then
    for i = items and #items or 0, 1, -1 do
      call('LPUSH', input, items[i])
    end
    return { 'STALE', '', 0, 0 }
  elseif n > released then
    return { 'AHEAD', released }
  end
  if saved ~= '' and n > number(call('HGET', key, 'saved_seq') or 0) then
    call('HSET', prefix .. 'data:' .. live, 'saved', string.sub(saved, 2))
    call('HSET', key, 'saved_seq', n)
  end
  if items then
    if f[14] ~= '' or number(f[13]) > acked then
      configure(live, key, items)
    end
    acked = n
    if f[11] ~= '' then
      call('HSET', key, 'acked', acked, 'acked_mark', mark)
    else
      now = now or clock()
      call('HSET', key, 'acked', acked, 'acked_mark', mark, 'first_ack_at', now)
      call('HDEL', key, 'starts') -- A generation that acks is no crash loop.
    end
    if f[12] ~= '' then
      now = now or clock()
      local _, _, leave_waiting = rarely()
      leave_waiting(live, { waits = f[12] })
    end
    if f[10] ~= '' and number(string.match(f[10], '^%d+')) <= n then
      call('HSET', key, 'suspect', '')
    end
  end
  local ended = f[5] == 'closing' and acked == appended
  if ended then
    now = now or clock()
    local finish, read_live = rarely()
    finish(live, read_live(live), ended_ttl_ms)
  end
  return { 'ACKED', acked, ended and 1 or 0 }
end

local replies = { 0 }
for i = 2, #ARGV, 6 do
  replies[#replies + 1] = ack(unpack(ARGV, i, i + 5))
end
replies[1] = now or 0 -- Read only by a first ack and by one that ends its live.
return replies
