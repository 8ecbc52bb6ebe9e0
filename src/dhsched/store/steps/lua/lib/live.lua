-- live: a live's record as a table, and the one writer of moves.
--
-- Every field is text, but the cursors are numbers; a field that is absent or empty is not set. The fields that every item
-- of input needs stand first in the record and are never removed (place.lua writes them at create): the record is
-- searched from its start.
local function read_live(live)
  local flat = call('HGETALL', prefix .. 'live:' .. live)
  if #flat == 0 then
    return nil
  end
  local fields = {}
  for i = 1, #flat, 2 do
    fields[flat[i]] = flat[i + 1]
  end
  local r = read_fence(fields.fence)
  r.appended, r.released, r.acked, r.config_next, r.at_boundary, r.acked_mark = read_cursors(fields.cursors)
  for field, value in pairs(fields) do
    if value ~= '' then
      r[field] = value
    end
  end
  return r
end

local function wake_controller(live, controller)
  if controller and controller ~= '' then
    call('SPUBLISH', prefix .. 'infer:' .. controller, live)
  end
end

local function set_move(live, r, target, num, expires)
  call('HSET', prefix .. 'live:' .. live, 'move_target', target, 'move_number', num, 'move_expires', expires)
  call('HINCRBY', prefix .. 'worker:' .. r.selected, 'cutovers', 1)
end

-- Forget the live's move, if it has one; its reservation is given back unless `keep`.
local function clear_move(live, r, keep)
  local target, num, hold = r.move_target, r.move_number, r.hold
  if not target then
    return
  end
  call('HDEL', prefix .. 'live:' .. live, 'move_target', 'move_number', 'move_expires')
  if hold then
    -- What stood still under the hold is no stall, so what was noted before is void; and it may flow again, which a
    -- look makes sure of: the next one was set for the end of the move.
    r.hold = nil
    write_fence(live, r)
    call('HDEL', prefix .. 'live:' .. live, 'note')
    r.note = nil
    look_by(r.priority, live, now)
  end
  call('HINCRBY', prefix .. 'worker:' .. r.selected, 'cutovers', -1)
  if not keep and slot_of(target, live, num) == 'reserved' then
    write_slot(target, live, num, 'departing')
  end
  if hold then
    wake_controller(live, r.controller) -- No move, no hold: what was held back may flow again.
  end
  r.move_target, r.move_number, r.move_expires = nil, nil, nil
end

-- Any refusal because of the target clears the move in the same step.
local function clear_moves_to(id)
  for _, slot in ipairs(slot_table(id)) do
    if slot.state == 'reserved' then
      clear_move(slot.live, read_live(slot.live))
    end
  end
end

-- Input stands at the boundary before a planned move.
local function held(r)
  local at = number(r.hold or '')
  return at ~= nil and r.released >= at
end

-- How far the current generation has come: a live that stands still keeps it.
local function progress(r)
  return r.epoch .. ' ' .. whole(r.acked)
end

local function backoff_ms(tries, lease_ms, backoff_max_ms)
  return math.min(number(backoff_max_ms), lease_ms * 2 ^ math.min(tries, 20))
end
