-- live: a live's record as a table of strings, and the one writer of moves.
--
-- A field that is absent or empty is not set. The fields that every item of input needs stand first in the record and
-- are never removed (place.lua writes them at create): the record is searched from its start.
local function read_live(live)
  local flat = call('HGETALL', prefix .. 'live:' .. live)
  if #flat == 0 then
    return nil
  end
  local r = {}
  for i = 1, #flat, 2 do
    if flat[i + 1] ~= '' then
      r[flat[i]] = flat[i + 1]
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
  local target, num = r.move_target, r.move_number
  if not target then
    return
  end
  call('HDEL', prefix .. 'live:' .. live, 'move_target', 'move_number', 'move_expires')
  if r.move_hold then
    -- What stood still under the hold is no stall, so what was noted before is void; and it may flow again, which a
    -- look makes sure of: the next one was set for the end of the move.
    call('HSET', prefix .. 'live:' .. live, 'move_hold', '')
    call('HDEL', prefix .. 'live:' .. live, 'note')
    r.note = nil
    look_by(r.priority, live, now)
  end
  call('HINCRBY', prefix .. 'worker:' .. r.selected, 'cutovers', -1)
  if not keep and slot_of(target, live, num) == 'reserved' then
    write_slot(target, live, num, 'departing')
  end
  if r.move_hold then
    wake_controller(live, r.controller) -- No move, no hold: what was held back may flow again.
  end
  r.move_target, r.move_number, r.move_expires, r.move_hold = nil, nil, nil, nil
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
  local at = number(r.move_hold or '')
  return at ~= nil and number(r.released or 0) >= at
end

local function cursors(r)
  return r.epoch .. ' ' .. (r.acked or 0)
end

local function backoff_ms(tries, lease_ms, backoff_max_ms)
  return math.min(number(backoff_max_ms), lease_ms * 2 ^ math.min(tries, 20))
end
