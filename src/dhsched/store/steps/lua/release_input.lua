-- release_input: hand pulls what comes after `after`: never more than the credit unacked, never past a hold. The fence
-- (paper, equation 3) is the first condition; many lives share one call, each as if it were alone.
--
-- USES     item
-- KEYS     cell
-- ARGV     credit
-- EACH     live, worker_id, epoch, pull_no, after, mark
-- RETURNS  ITEMS first more, then the items
--          NOTHING
--          STALE worker epoch pull_no
--          ENDED
local credit = ARGV[1]

local function release(live, worker_id, epoch, pull_no, after, mark)
  local key = prefix .. 'live:' .. live
  local f = call('HMGET', key, 'epoch', 'selected', 'active', 'pull_no', 'state', 'appended', 'released', 'acked',
    'acked_mark', 'move_hold', 'suspect')
  if not f[1] then
    return { 'STALE', '', 0, 0 }
  elseif f[5] == 'ended' then
    return { 'ENDED' }
  elseif f[1] ~= epoch or f[2] ~= worker_id or f[3] ~= worker_id or f[4] ~= pull_no or number(epoch) <= floor then
    return { 'STALE', f[2], number(f[1]), number(f[4]) }
  end
  local appended, released, acked, hold = number(f[6]), number(f[7]), number(f[8]), f[10]
  local window = credit
  if f[11] ~= '' and number(string.match(f[11], '^%d+')) == acked + 1 then
    window = math.min(credit, 1) -- The head may be what killed the last generation: alone, it is blamed rightly.
  end
  after = number(after)
  local first = math.max(math.min(after, released), acked) + 1
  local last = math.min(appended, acked + window)
  if hold ~= '' and hold ~= 'next' then
    last = math.min(last, number(hold))
  end
  -- The item before the first is read with those that are asked for: mostly it is the one that the caller names.
  local before = first - 1 > acked and 1 or 0
  local items = (before == 1 or last >= first)
    and call('LRANGE', prefix .. 'input:' .. live, first - acked - 1 - before, math.max(last, first - 1) - acked - 1)
  local named = before == 1 and table.remove(items, 1)
  if not fits(live, after, mark, acked, f[9], appended, after == first - 1 and named) then
    return { 'STALE', '', 0, 0 }
  elseif last < first then
    return { 'NOTHING' }
  end
  -- A sentence ends at signs T and C, I and J are interrupts; and a closing live has nothing after its last item.
  if hold == 'next' then
    for seq = math.max(released + 1, first), last do
      if string.find(items[seq - first + 1], '^[TCIJ]') or (f[5] == 'closing' and seq == appended) then
        call('HSET', key, 'move_hold', seq)
        for beyond = #items, seq - first + 2, -1 do
          items[beyond] = nil
        end
        last = seq
        break
      end
    end
  end
  if last > released then
    local ends = string.find(items[last - first + 1], '^[TCIJ]') or (f[5] == 'closing' and last == appended)
    call('HSET', key, 'released', last, 'at_boundary', ends and '1' or '')
  end
  local more = last == acked + window and last < appended
  return { 'ITEMS', first, more and 1 or 0, unpack(items) }
end

local replies = { 0 } -- Nothing here depends on time, so it is not read.
for i = 2, #ARGV, 6 do
  replies[#replies + 1] = release(unpack(ARGV, i, i + 5))
end
return replies
