-- reserve: set a place aside for a planned move, with the number its generation will have.
--
-- USES     clock now agenda record waiting worker candidates slot live
-- KEYS     cell
-- ARGV     live, expected, candidates, move_expires_ms, term_step
-- RETURNS  RESERVED target number again
--          STALE worker epoch pull_no
--          BUSY cutovers    the source has as many moves under way as it may
--          FULL worker reason load capacity of each candidate
--          ENDED, NOT_FOUND
local live, expected, candidates, move_expires_ms, term_step = unpack(ARGV)

local r = read_live(live)
if not r then
  return { 'NOT_FOUND', now }
elseif r.state == 'ended' then
  return { 'ENDED', now }
elseif r.epoch ~= expected then
  return { 'STALE', now, r.selected, number(r.epoch), 0 }
elseif r.move_target then
  return { 'RESERVED', now, r.move_target, number(r.move_number), 1 }
end
local source = call('HMGET', prefix .. 'worker:' .. r.selected, 'cutovers', 'pace', 'cutovers_max')
local cutovers = number(source[1] or 0)
if cutovers >= number(source[2] or 1) * number(source[3] or 0) then
  return { 'BUSY', now, cutovers }
end

-- One by one: the emptiest of equals that has a free slot stands before the others. A reservation starts nothing, so budgets
-- do not matter.
local ordered = {}
for candidate in string.gmatch(candidates, '%S+') do
  local ids, pool = asked(candidate)
  local others = {}
  for _, id in ipairs(ids) do
    if id ~= r.selected then
      others[#others + 1] = id
    end
  end
  local best = pool and #others > 0 and emptiest(pool, others, 2)
  ordered[#ordered + 1] = best or nil
  for _, id in ipairs(ids) do
    if id ~= best then
      ordered[#ordered + 1] = id
    end
  end
end

local reply = { 'FULL', now }
for _, id in ipairs(ordered) do
  local w = worker(id)
  local reason
  if not w then
    reason = 'UNKNOWN'
  elseif not placeable(w) then
    reason = w.gone and 'GONE' or w.lost and 'LOST' or w.mode == 'cordoned' and 'CORDONED'
      or w.mode == 'draining' and 'DRAINING' or 'NEW'
  elseif id == r.selected or w.load >= w.capacity then
    reason = 'FULL'
  end
  if not reason then
    local last = math.max(epoch_base, floor)
    local num = math.max(number(r.issued), last) + 1
    if num > last + term_step then
      call('HSET', KEYS[1], 'epoch_base', num) -- The next term begins above it.
    end
    write_slot(id, live, num, 'reserved', nil, false)
    call('HSET', prefix .. 'live:' .. live, 'issued', num)
    set_move(live, r, id, num, now + move_expires_ms)
    look_by(r.priority, live, now + move_expires_ms)
    return { 'RESERVED', now, id, num, 0 }
  end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, reason, w and w.load or 0, w and w.capacity or 0
end
return reply
