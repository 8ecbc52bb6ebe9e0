-- release_input: hand pulls what comes after `after`: never more than the credit unacked, never past a hold. The fence
-- (paper, equation 3) is the first condition; many lives share one call, each as if it were alone.
--
-- `pull` is the Worker, epoch, pull number, `after` and the mark of that item.
--
-- USES     record item
-- KEYS     cell
-- ARGV     credit
-- EACH     live, pull
-- RETURNS  ITEMS first more, then the items
--          NOTHING
--          STALE worker epoch pull_no
--          ENDED
local credit = ARGV[1]
credit = number(credit)
local USUAL = {} -- The fence of a live where nothing keeps input from flowing to this pull.

local function release(live, pull)
  local key = prefix .. 'live:' .. live
  local f = call('HMGET', key, 'selected', 'fence', 'cursors')
  local selected, fence = f[1], f[2]
  if not fence then
    return { 'STALE', '', 0, 0 }
  end
  local worker_id, epoch, pull_no, after, mark = match(pull, '^(%S+) (%d+) (%d+) (%d+) (.*)$')
  local r = USUAL
  if fence ~= epoch .. ' ' .. pull_no .. ' open' then
    r = read_fence(fence)
    if r.state == 'ended' then
      return { 'ENDED' }
    end
  end
  if selected ~= worker_id or number(epoch) <= floor
    or r ~= USUAL and (r.epoch ~= epoch or r.pull_no ~= pull_no or r.unclaimed) then
    r = read_fence(fence)
    return { 'STALE', selected, number(r.epoch), number(r.pull_no) }
  end
  local appended_text, released_text, acked_text, config_text, at_boundary, acked_mark = split_cursors(f[3])
  local appended, released, acked = appended_text + 0, released_text + 0, acked_text + 0
  local window, hold, closing = credit, r.hold, r.state == 'closing'
  if r.suspect and number(match(r.suspect, '^%d+')) == acked + 1 then
    window = math.min(credit, 1) -- The head may be what killed the last generation: alone, it is blamed rightly.
  end
  after = number(after)
  local first = math.max(math.min(after, released), acked) + 1
  local last = math.min(appended, acked + window)
  if hold and hold ~= 'next' then
    last = math.min(last, number(hold))
  end
  -- The item before the first is read with those that are asked for: mostly it is the one that the caller names.
  local before = first - 1 > acked and 1 or 0
  local items = (before == 1 or last >= first)
    and call('LRANGE', prefix .. 'input:' .. live, first - acked - 1 - before, math.max(last, first - 1) - acked - 1)
  local named = before == 1 and table.remove(items, 1)
  if not fits(live, after, mark, acked, acked_mark, appended, after == first - 1 and named) then
    return { 'STALE', '', 0, 0 }
  elseif last < first then
    return { 'NOTHING' }
  end
  -- A sentence ends at signs T and C, I and J are interrupts; and a closing live has nothing after its last item.
  if hold == 'next' then
    for seq = math.max(released + 1, first), last do
      if string.find(items[seq - first + 1], '^[TCIJ]') or (closing and seq == appended) then
        r.hold = whole(seq)
        write_fence(live, r)
        for beyond = #items, seq - first + 2, -1 do
          items[beyond] = nil
        end
        last = seq
        break
      end
    end
  end
  if last > released then
    local ends = string.find(items[last - first + 1], '^[TCIJ]') or (closing and last == appended)
    at_boundary = ends and '1' or '0'
    local last_text = last == appended and appended_text or whole(last)
    call('HSET', key, 'cursors', join_cursors(appended_text, last_text, acked_text, config_text, at_boundary, acked_mark))
  end
  local more = last == acked + window and last < appended
  return { 'ITEMS', first, more and 1 or 0, unpack(items) }
end

local replies = { 0 } -- Nothing here depends on time, so it is not read.
for i = 2, #ARGV, 2 do
  replies[#replies + 1] = release(unpack(ARGV, i, i + 1))
end
return replies
