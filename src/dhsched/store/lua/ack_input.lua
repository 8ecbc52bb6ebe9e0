-- ack_input: the runtime has consumed everything up to `n`; its small state moves with the cursor. Many lives share one
-- call, each as if it were alone.
--
-- USES     clock
-- RARELY   agenda waiting worker slot live finish: finish, read_live, leave_waiting
-- KEYS     cell
-- ARGV     ended_ttl_ms
-- EACH     live, worker_id, epoch, n, saves, saved
-- RETURNS  ACKED acked ended
--          AHEAD released    an ack of something that was not released
--          STALE worker epoch pull_no
--          ENDED
local ended_ttl_ms = ARGV[1]
local floor = number(call('HGET', KEYS[1], 'epoch_floor') or 0)

local function ack(live, worker_id, epoch, n, saves, saved)
  local key = prefix .. 'live:' .. live
  local f = call('HMGET', key, 'epoch', 'selected', 'active', 'pull_no', 'state', 'appended', 'released', 'acked',
    'saved_seq', 'suspect', 'first_ack_at', 'waits')
  if not f[1] then
    return { 'STALE', '', 0, 0 }
  elseif f[5] == 'ended' then
    return { 'ENDED' }
  elseif f[1] ~= epoch or f[2] ~= worker_id or f[3] ~= worker_id or number(epoch) <= floor then
    return { 'STALE', f[2], number(f[1]), number(f[4]) }
  end
  n = number(n)
  local appended, released, acked = number(f[6]), number(f[7]), number(f[8])
  if n > released then
    return { 'AHEAD', released }
  end
  if saves == '1' and n > number(f[9] or 0) then
    call('HSET', prefix .. 'data:' .. live, 'saved', saved)
    call('HSET', key, 'saved_seq', n)
  end
  if n > acked then
    call('LTRIM', prefix .. 'input:' .. live, n - acked, -1)
    acked = n
    if f[11] ~= '' then
      call('HSET', key, 'acked', acked)
    else
      now = now or clock()
      call('HSET', key, 'acked', acked, 'first_ack_at', now)
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
