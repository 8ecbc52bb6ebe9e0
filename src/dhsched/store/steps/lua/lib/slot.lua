-- slot: the one writer of slots. Load, starting, free and rev are differences that it applies.

-- When each slot of a Worker last changed, also of slots that are gone; the oldest beyond this number are forgotten.
local SLOT_REVS_MAX = 128

-- `was` is the number that the slot had, where that changes. `old` is its state, false if there is none, where the caller
-- knows it.
local function write_slot(id, live, num, state, was, old)
  local w = worker(id)
  if w.gone and state == 'departing' then
    state = nil -- Nothing runs on a Worker that is gone, so nothing is left to depart.
  end
  local slots, tag = prefix .. 'slots:' .. id, live .. '@' .. whole(num)
  local old_tag = was and live .. '@' .. whole(was) or tag
  if old == nil then
    old = call('HGET', slots, old_tag)
  end
  if old and (not state or old_tag ~= tag) then
    call('HDEL', slots, old_tag)
  end
  if state then
    call('HSET', slots, tag, state)
  end
  local load, starting, was_at = w.load, w.starting, standing(w)
  w.load = load + (state and 1 or 0) - (old and 1 or 0)
  w.starting = starting + (state == 'starting' and 1 or 0) - (old == 'starting' and 1 or 0)
  if old == 'starting' and state == 'running' then
    -- A claim changes nothing that an agent acts on or a view ranks by, and claims are frequent.
    call('HSET', prefix .. 'worker:' .. id, 'starting', w.starting)
  else
    local at, revs = touch(id), prefix .. 'slot_revs:' .. id
    call('HSET', prefix .. 'worker:' .. id, 'load', w.load, 'starting', w.starting, 'slots_rev', at)
    call('ZADD', revs, at, tag, at, old_tag)
    call('ZREMRANGEBYRANK', revs, 0, -1 - SLOT_REVS_MAX)
  end
  if w.gone and w.load == 0 then
    forget_worker(id, w)
    return
  end
  if w.load ~= load or standing(w) ~= was_at then
    write_free(id, w)
  end
  if placeable(w) and w.load < w.capacity and (w.load < load or w.starting < starting) then
    wake_waiting(w.pool, 1)
  end
end

local function slot_of(id, live, num)
  return call('HGET', prefix .. 'slots:' .. id, live .. '@' .. whole(num))
end

-- The live, number and state of every slot of a Worker.
local function slot_table(id)
  local flat, rows = call('HGETALL', prefix .. 'slots:' .. id), {}
  for i = 1, #flat, 2 do
    local live, num = string.match(flat[i], '^(.*)@(%d+)$')
    rows[#rows + 1] = { live = live, number = num, state = flat[i + 1] }
  end
  return rows
end

-- A slot of a current generation.
local OWNED = { starting = true, running = true, vacant = true }
