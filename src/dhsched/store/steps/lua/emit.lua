-- emit: store messages of runtimes for their applications, each once and in order. Many lives share one call, each as
-- if it were alone. `told` is the last message that the runtime knows to be stored.
--
-- USES     record
-- KEYS     cell
-- ARGV     emits_max, emits_bytes_max
-- EACH     live, worker_id, epoch, n, name, data, told
-- RETURNS  EMITTED n     the last message of this generation that is stored
--          GAP last      messages before this one are missing: send what comes after `last`
--          STALE worker epoch pull_no
--          ENDED
local emits_max, emits_bytes_max = unpack(ARGV, 1, 2)
local ttl_s = 3600 -- Since the last message; after that a live's messages are forgotten.

local function emit(live, worker_id, epoch, n, name, data, told)
  local key = prefix .. 'live:' .. live
  local selected, fence, emitted = unpack(call('HMGET', key, 'selected', 'fence', 'emitted'))
  if not fence then
    return { 'STALE', '', 0, 0 }
  end
  local r = read_fence(fence)
  if r.state == 'ended' then
    return { 'ENDED' }
  elseif r.epoch ~= epoch or selected ~= worker_id or r.unclaimed or number(epoch) <= floor then
    return { 'STALE', selected, number(r.epoch), number(r.pull_no) }
  end
  local last_epoch, last, kept_bytes = string.match(emitted or '', '^(%d+) (%d+) (%d+)$')
  last = last_epoch == epoch and number(last) or 0
  n = number(n)
  if n <= last then
    return { 'EMITTED', last }
  elseif n > math.max(last, number(told)) + 1 then
    return { 'GAP', last }
  end
  local list = prefix .. 'emits:' .. live
  local message = epoch .. ' ' .. whole(n) .. ' ' .. name .. ' ' .. data
  local count = call('RPUSH', list, message)
  -- The first one of a list that has expired: what was counted is gone.
  kept_bytes = (count > 1 and number(kept_bytes) or 0) + #message
  while count > 0 and (count > number(emits_max) or kept_bytes > number(emits_bytes_max)) do
    kept_bytes = kept_bytes - #call('LPOP', list)
    count = count - 1
  end
  call('EXPIRE', list, ttl_s)
  call('HSET', key, 'emitted', epoch .. ' ' .. whole(n) .. ' ' .. whole(kept_bytes))
  return { 'EMITTED', n }
end

local replies = { 0 }
for i = 3, #ARGV, 7 do
  replies[#replies + 1] = emit(unpack(ARGV, i, i + 6))
end
return replies
