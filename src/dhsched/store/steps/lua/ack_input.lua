-- ack_input: the runtime has consumed everything up to `n`; its small state moves with the cursor. Many lives share one
-- call, each as if it were alone. `acking` is the Worker, epoch, n and the mark of item n. `saved` is empty; or `=` and the
-- state, if it changed; or `+`, a change of the journal and perhaps the state: `+drop first state_bytes entry_bytes ...;` and
-- all the bytes (ownership/journal.py).
--
-- USES     clock record item
-- RARELY   agenda waiting worker slot live finish: finish, read_live, leave_waiting
-- KEYS     cell
-- ARGV     ended_ttl_ms, journal_bytes_max, journal_entries_max
-- EACH     live, acking, saved
-- RETURNS  ACKED acked ended; of a live that has not ended only the number
--          AHEAD released    an ack of something that was not released
--          GAP last          journal entries after this one are missing
--          JOURNAL_FULL bytes
--          STALE worker epoch pull_no
--          ENDED
local ended_ttl_ms, journal_bytes_max, journal_entries_max = unpack(ARGV, 1, 3)

-- The last config item among those acked is in force. The configuration before it stays to fall back to until another
-- item is acked: only that shows that a runtime can live with the new one. Config items that follow each other leave it
-- as it was: each may be as bad as the last. `kept` says whether there is one; returns whether there is one now.
local function configure(live, items, kept)
  local data = prefix .. 'data:' .. live
  local config, fallback = nil, kept and call('HGET', data, 'fallback')
  for _, item in ipairs(items) do
    local brought = config_of(item)
    fallback = brought and (fallback or config or call('HGET', data, 'config') or '')
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
  return fallback and ''
end

-- What the first ack of a generation does, and every ack of a live about which something is not as usual.
local function settle(live, key, r, acked)
  if r.first then
    now = now or clock()
    call('HSET', key, 'first_ack_at', now)
    call('HDEL', key, 'starts') -- A generation that acks is no crash loop.
    r.first = nil
  end
  if r.suspect and number(match(r.suspect, '^%d+')) <= acked then
    r.suspect = nil
  end
  write_fence(live, r)
  if r.waiting then
    now = now or clock()
    local _, _, leave_waiting = rarely()
    r.waits = call('HGET', key, 'waits')
    leave_waiting(live, r)
  end
end

-- Change the journal, or return why not. Entries that are there are not added again, so this can be repeated.
local function change_journal(live, drop, first, entries)
  local data, key = prefix .. 'data:' .. live, prefix .. 'journal:' .. live
  local f = call('HMGET', data, 'journal_last', 'journal_bytes')
  local last, bytes, kept = number(f[1] or 0), number(f[2] or 0), call('LLEN', key)
  local written = math.max(last, drop)
  if first > written + 1 then
    return { 'GAP', last }
  end
  local dropped = math.max(0, math.min(drop, last) - (last - kept))
  for _, entry in ipairs(dropped > 0 and call('LRANGE', key, 0, dropped - 1) or {}) do
    bytes = bytes - #entry
  end
  local added = {}
  for i = written + 2 - first, #entries do
    bytes = bytes + #entries[i]
    added[#added + 1] = entries[i]
  end
  if bytes > number(journal_bytes_max) or kept - dropped + #added > number(journal_entries_max) then
    return { 'JOURNAL_FULL', bytes }
  end
  if dropped > 0 then
    call('LTRIM', key, dropped, -1)
  end
  if #added > 0 then
    call('RPUSH', key, unpack(added))
  end
  call('HSET', data, 'journal_last', whole(math.max(written, first + #entries - 1)), 'journal_bytes', bytes)
end

-- The state, if it changed, and a refusal of the change of the journal that stands before it.
local function save(live, saved)
  if sub(saved, 1, 1) == '=' then
    return sub(saved, 2)
  end
  local drop, first, state, sizes, at = match(saved, '^%+(%d+) (%d+) (%d*)([%d ]*);()')
  local entries, from = {}, at + number(state ~= '' and state or 0)
  for size in string.gmatch(sizes, '%d+') do
    entries[#entries + 1] = sub(saved, from, from + size - 1)
    from = from + size
  end
  return state ~= '' and sub(saved, at, at + state - 1), change_journal(live, number(drop), number(first), entries)
end

-- Put back what was taken out of the queue.
local function put_back(input, items)
  for i = items and #items or 0, 1, -1 do
    call('LPUSH', input, items[i])
  end
end

local function ack(live, acking, saved)
  local key = prefix .. 'live:' .. live
  local f = call('HMGET', key, 'selected', 'fence', 'cursors')
  local selected, fence = f[1], f[2]
  if not fence then
    return { 'STALE', '', 0, 0 }
  end
  local worker_id, epoch, n_text, mark = match(acking, '^(%S+) (%d+) (%d+) (.*)$')
  local r -- The fence, where something is not as usual.
  if not string.find(fence, '^' .. epoch .. ' %d+ open$') then
    r = read_fence(fence)
    if r.state == 'ended' then
      return { 'ENDED' }
    end
  end
  if selected ~= worker_id or number(epoch) <= floor or r and (r.epoch ~= epoch or r.unclaimed) then
    r = read_fence(fence)
    return { 'STALE', selected, number(r.epoch), number(r.pull_no) }
  end
  local appended_text, released_text, acked_text, config_text, at_boundary, acked_mark = split_cursors(f[3])
  local n, appended, released, acked = n_text + 0, appended_text + 0, released_text + 0, acked_text + 0
  -- One command reads the item that is named and takes it out with those before it.
  local input = prefix .. 'input:' .. live
  local items = n > acked and n <= released and call('LPOP', input, n - acked)
  if not fits(live, n, mark, acked, acked_mark, appended, items and items[#items]) then
    put_back(input, items)
    return { 'STALE', '', 0, 0 }
  elseif n > released then
    return { 'AHEAD', released }
  end
  if saved ~= '' then
    local state, refused = save(live, saved)
    if refused then
      put_back(input, items)
      return refused
    elseif state and n > number(call('HGET', key, 'saved_seq') or 0) then
      call('HSET', prefix .. 'data:' .. live, 'saved', state)
      call('HSET', key, 'saved_seq', n)
    end
  end
  if items then
    if config_text + 0 > acked or (r and r.fallback) then
      r = r or read_fence(fence)
      r.fallback = configure(live, items, r.fallback)
    end
    acked = n
    call('HSET', key, 'cursors', join_cursors(appended_text, released_text, n_text, config_text, at_boundary, mark))
    if r then
      settle(live, key, r, acked)
    end
  end
  if r and r.state == 'closing' and acked == appended then
    now = now or clock()
    local finish, read_live = rarely()
    finish(live, read_live(live), ended_ttl_ms)
    return { 'ACKED', acked, 1 }
  end
  return acked
end

local replies = { 0 }
for i = 4, #ARGV, 3 do
  replies[#replies + 1] = ack(unpack(ARGV, i, i + 2))
end
replies[1] = now or 0 -- Read only by a first ack and by one that ends its live.
return replies
