-- place: commit a live's next generation, on the first candidate with a free slot, the emptiest of equals, else in the named
-- Pools (paper, algorithms 1 and 3). The only way to a new generation.
--
-- USES     clock now agenda record waiting worker candidates slot lifetime
-- RARELY   live needs finish: read_live, clear_move, held, needs, finish
-- KEYS     cell
-- ARGV     live, operation, cause, expected, digital_id, fingerprint, room, metadata, config, priority, immovable,
--          idle_ms, max_ms, labels, candidates, pools, at_boundary, claim_wait_ms, history_max, poison_max, dead_max,
--          ended_ttl_ms, term_step, lives_max
-- RETURNS  COMMITTED worker epoch rev load again later_worker later_epoch, then worker reason load capacity of each refusal
--          STALE worker epoch pull_no
--          MOOT, NOT_YET, CONFLICT, ENDED, NOT_FOUND
--          QUOTA lives lives_max
--          FULL, STARTING, WAITING: worker reason load capacity of each refusal
local live, operation, cause, expected, digital_id, fingerprint, room, metadata, config, priority, immovable,
  idle_ms, max_ms, labels, candidates, pools, at_boundary, claim_wait_ms, history_max, poison_max, dead_max, ended_ttl_ms,
  term_step, lives_max = unpack(ARGV)

local key = prefix .. 'live:' .. live
local r, read_live, clear_move, held, needs, finish
if cause == 'create' then
  -- On an id that is taken, the same call once more is answered with its generation.
  local selected, fence, by = unpack(call('HMGET', key, 'selected', 'fence', 'fingerprint'))
  local taken = fence and read_fence(fence)
  if taken and taken.state == 'ended' then
    return { 'ENDED', now }
  elseif taken and by ~= fingerprint then
    return { 'CONFLICT', now }
  elseif taken then
    return { 'COMMITTED', now, selected, number(taken.epoch), 0, 0, 1, '', 0 }
  end
else
  read_live, clear_move, held, needs, finish = rarely()
  r = read_live(live)
end

-- The lives of the tenant. Those that have ended are listed until they are swept, and do not count.
if cause == 'create' and lives_max ~= '0' then
  local tenant = string.match(live, '^[^/]*')
  local from, to = '[' .. tenant .. '/', '(' .. tenant .. '0' -- The byte after the slash is 0.
  local lives = call('ZLEXCOUNT', prefix .. 'lives', from, to) - call('ZLEXCOUNT', prefix .. 'ended', from, to)
  if lives >= number(lives_max) then
    return { 'QUOTA', now, lives, number(lives_max) }
  end
end

-- The item at the head, when one more generation dead over it makes it poison.
local released, acked = r and r.released or 0, r and r.acked or 0
local need, deaths = nil, 0
local reason = r and call('HGET', prefix .. 'data:' .. live, 'reason')
if r and r.suspect then
  local head, n = string.match(r.suspect, '(%d+):(%d+)')
  deaths = number(head) == acked + 1 and number(n) or 0
end
-- A recovery counts against the input in hand, unless it is the store's fault.
local function blames()
  return cause == 'recover' and need ~= 'floor' and not r.forgot
end
local function poisoned()
  return released > acked and deaths + 1 >= number(poison_max)
end

local function bury(item)
  local died_of = reason or need
  call('RPUSH', prefix .. 'dead:' .. live, 'D' .. #died_of .. ':' .. died_of .. item)
  call('LTRIM', prefix .. 'dead:' .. live, -dead_max, -1)
end

local function drop_poison()
  local item = call('LPOP', prefix .. 'input:' .. live)
  bury(item)
  acked = acked + 1
  r.acked, r.acked_mark, r.suspect = acked, string.sub(item, 2, 9), nil -- Written at the commit, or the end.
  call('HINCRBY', key, 'dropped_poison', 1)
end

local history
if cause ~= 'create' then
  if not r then
    return { 'NOT_FOUND', now }
  end
  if r.operation == operation then
    return { 'COMMITTED', now, r.selected, number(r.epoch), 0, 0, 1, '', 0 }
  end
  history = call('GET', prefix .. 'history:' .. live) or ''
  for epoch, id, by in string.gmatch(history, '(%d+) (%S+) %S+ (%S+)[^\n]*\n') do
    if by == operation then
      return { 'COMMITTED', now, id, number(epoch), 0, 0, 1, r.selected, number(r.epoch) }
    end
  end
  if r.epoch ~= expected then
    return { 'STALE', now, r.selected, number(r.epoch), 0 }
  elseif r.state == 'ended' then
    return { 'ENDED', now }
  end
  need = cause == 'recover' and needs(live, r)
  if cause == 'recover' and not need then
    leave_waiting(live, r)
    return { 'MOOT', now }
  elseif cause == 'drain' and worker(r.selected).mode ~= 'draining' then
    return { 'MOOT', now }
  elseif at_boundary == '1' and not (held(r) and acked == released) then
    return { 'NOT_YET', now }
  end
  if blames() and poisoned() and r.state == 'closing' and r.appended == acked + 1 then
    drop_poison()
    finish(live, r, ended_ttl_ms)
    return { 'ENDED', now }
  end
end

-- Admission. What is true here is true at the commit: the whole step is one.
-- How many start budgets a Worker may have reached and still start this live: that of recoveries is never the higher one.
local reach = cause == 'recover' and 0 or 1
-- A create goes after the lives that wait for a free slot in the Pool.
local function goes_after(pool)
  return cause == 'create' and call('EXISTS', prefix .. 'waiting:' .. pool) == 1
end
local function refuses(id)
  local w = worker(id)
  if not w then
    return 'UNKNOWN'
  elseif w.gone then
    return 'GONE'
  elseif w.lost then
    return 'LOST'
  elseif w.mode == 'cordoned' then
    return 'CORDONED'
  elseif w.mode == 'draining' then
    return 'DRAINING'
  elseif w.beat == 0 then
    return 'NEW'
  elseif r and (r.selected == id or r.move_target == id) then
    return nil -- It holds the live's slot, or its reservation: its slot is there already.
  elseif w.load >= w.capacity then
    return 'FULL'
  elseif goes_after(w.pool) then
    return 'WAITING'
  elseif w.starting >= w.pace * (cause == 'recover' and w.recovers or w.creates) then
    return 'STARTING'
  end
end

local winner
local refused, refusals = {}, {}
for candidate in string.gmatch(candidates, '%S+') do
  local ids, pool = asked(candidate)
  local best, scores
  if pool and not goes_after(pool) then
    best, scores = emptiest(pool, ids, reach)
  end
  for i, id in ipairs(ids) do
    -- Beside a winner those without a free slot are told of, so that a view which believes in them learns.
    if not best or not scores[i] then
      local cannot = refuses(id)
      if cannot then
        refused[cannot] = true
        local w, n = worker(id), #refusals
        refusals[n + 1], refusals[n + 2] = id, cannot
        refusals[n + 3], refusals[n + 4] = w and w.load or 0, w and w.capacity or 0
      elseif not best then
        best = id
        break
      end
    end
  end
  winner = best
  if winner then
    break
  end
end
if not winner then
  -- Asked to leave, staying is not an answer; a live that lost its runtime may come back.
  local left = cause ~= 'recover' and r and r.selected
  for pool in string.gmatch(pools, '%S+') do
    local key, later = prefix .. 'free:' .. pool, goes_after(pool)
    local first = not later and call('ZRANGE', key, 0, 0, 'WITHSCORES') or {}
    local lowest = number(first[2] or '')
    if lowest and lowest >= 0 and lowest < 1 and first[1] ~= left then
      winner = first[1]
    elseif lowest then
      -- Some are at one budget, or the first is to be left: the emptiest below both, and where it may, at one.
      for at = 0, -reach, -1 do
        local found = call('ZRANGEBYSCORE', key, at, '(' .. at + 1, 'LIMIT', 0, 2)
        local id = found[1] == left and found[2] or found[1]
        if id and id ~= left and (not winner or call('ZSCORE', key, id) % 1 < call('ZSCORE', key, winner) % 1) then
          winner = id
        end
      end
    end
    if winner then
      break
    elseif call('ZCARD', key) > (left and call('ZSCORE', key, left) and 1 or 0) then
      refused[later and 'WAITING' or 'STARTING'] = true
    end
  end
end

local function reply(...)
  local words = { ... }
  local n = #words
  for i = 1, #refusals do
    words[n + i] = refusals[i]
  end
  return words
end

if not winner then
  if cause == 'recover' and pools ~= '' then
    join_waiting(live, r, pools)
  elseif cause == 'recover' and candidates == '' then
    leave_waiting(live, r) -- Nobody may take it as things are configured: it must not keep others out.
  end
  return reply(refused.STARTING and 'STARTING' or refused.WAITING and 'WAITING' or 'FULL', now)
end

-- Commit.
local epoch = math.max(r and number(r.issued) or 0, epoch_base, floor) + 1
local issued = epoch
local written = {} -- The fields that the commit writes, but for the first three.
local function with(fields, name, value)
  if value and value ~= '' then -- Absent and empty mean the same.
    local n = #fields
    fields[n + 1], fields[n + 2] = name, value
  end
end

if cause == 'create' then
  r = { state = 'open', appended = 0, released = 0, acked = 0, config_next = 0, at_boundary = '0', acked_mark = '' }
  r.created_at, r.seen = now, '0 ' .. whole(now)
  r.idle_ms, r.max_ms = idle_ms ~= '0' and idle_ms or nil, max_ms ~= '0' and max_ms or nil
  written = { 'priority', priority, 'digital_id', digital_id, 'fingerprint', fingerprint, 'created_at', now, 'seen', r.seen }
  with(written, 'room', room)
  with(written, 'immovable', immovable)
  with(written, 'idle_ms', r.idle_ms)
  with(written, 'max_ms', r.max_ms)
  local data = {}
  with(data, 'metadata', metadata)
  with(data, 'config', config)
  with(data, 'labels', labels)
  if #data > 0 then
    call('HSET', prefix .. 'data:' .. live, unpack(data))
  end
  call('ZADD', prefix .. 'lives', 0, live)
  write_slot(winner, live, epoch, 'starting', nil, false)
else
  local source, was, target, reserved = r.selected, r.epoch, r.move_target, r.move_number
  clear_move(live, r, target == winner)
  if target == winner then
    if number(reserved) > math.max(epoch_base, floor) then
      -- The number was issued when the place was reserved, unless a term or a home has begun since: the commit may have
      -- been made before, in a history that is lost.
      epoch, issued = number(reserved), number(r.issued)
    end
    write_slot(winner, live, epoch, 'starting', reserved)
  elseif winner == source then
    write_slot(winner, live, epoch, 'starting', was)
  else
    write_slot(winner, live, epoch, 'starting', nil, false)
  end
  if winner ~= source then
    local slot = slot_of(source, live, was)
    write_slot(source, live, was, slot ~= 'vacant' and 'departing' or nil, nil, slot)
  end
  if blames() and released > acked then
    -- A generation was lost with input in its hands: its first item is suspect.
    if poisoned() then
      drop_poison()
    else
      -- A Worker that is only silent takes its count back when it reports again.
      local before = deaths > 0 and call('HGET', key, 'blamed') or ''
      local lost = need == 'lost' and ' ' .. source .. '@' .. was or ''
      r.suspect = whole(acked + 1) .. ':' .. whole(deaths + 1)
      call('HSET', key, 'blamed', before .. lost)
    end
  end
  leave_waiting(live, r)
  local _, rows = string.gsub(history, '\n', '')
  if rows >= number(history_max) then
    history = string.gsub(history, '^[^\n]*\n', '')
  end
  call('SET', prefix .. 'history:' .. live, history .. table.concat({ was, source, r.cause, r.operation, r.committed_at,
    r.claimed_at or 0, r.first_ack_at or 0, reason or nil }, ' ') .. '\n')
  if reason then
    call('HDEL', prefix .. 'data:' .. live, 'reason')
  end
  call('HDEL', key, 'note', 'stalled', 'tries', 'claimed_at', 'first_ack_at', 'forgot', 'controller')
  if released ~= acked then
    r.released, r.at_boundary = acked, '0'
  end
  local starts = number(r.starts or 0)
  if r.unclaimed then
    starts = call('HINCRBY', key, 'starts', 1)
  end
  if blames() and starts >= number(poison_max) and r.fallback then
    -- Generation after generation died before its first ack: the configuration that nobody has lived with goes.
    local data = prefix .. 'data:' .. live
    local config = call('HMGET', data, 'config', 'fallback')
    bury('c00000000' .. (config[1] or ''))
    call('HSET', data, 'config', config[2])
    call('HDEL', data, 'fallback')
    r.fallback = nil
  end
  priority = r.priority
end
-- Every number issued stays within a term's step of base and floor: the next term begins above all of them.
if epoch > math.max(epoch_base, floor) + term_step then
  call('HSET', KEYS[1], 'epoch_base', epoch)
end
r.epoch, r.pull_no, r.unclaimed, r.first = epoch, 0, '', nil
with(written, 'issued', issued)
with(written, 'cause', cause)
with(written, 'operation', operation)
with(written, 'committed_at', now)
-- What every item of input needs comes first, and stays there: the record is searched from its start.
call('HSET', key, 'selected', winner, 'fence', fence_text(r), 'cursors', cursors_of(r), unpack(written))
look_at(priority, live, by_lifetime(r, now + claim_wait_ms))
call('HINCRBY', KEYS[1], 'placed', 1)
return reply('COMMITTED', now, winner, epoch, rev, worker(winner).load, 0, '', 0)
