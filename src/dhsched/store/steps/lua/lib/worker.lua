-- worker: a Worker's record, read once per step; its revision; its place in free:<pool>.
local workers = {}
local rev

local function worker(id)
  local w = workers[id]
  if w == nil then
    local f = call('HMGET', prefix .. 'worker:' .. id, 'pool', 'capacity', 'mode', 'lost', 'gone', 'beat', 'load',
      'starting', 'link', 'boot', 'starts_create_max', 'starts_recover_max', 'pace', 'cutovers_max')
    w = f[1] and {
      pool = f[1], capacity = number(f[2]), mode = f[3], lost = f[4] == '1', gone = f[5] == '1',
      beat = number(f[6] or 0), load = number(f[7] or 0), starting = number(f[8] or 0), link = f[9], boot = f[10],
      creates = number(f[11] or 0), recovers = number(f[12] or 0), pace = number(f[13] or 1),
      moves = number(f[14] or 0),
    }
    workers[id] = w
  end
  return w
end

local function placeable(w)
  return w.mode == 'ready' and not w.lost and not w.gone and w.beat > 0
end

-- A hint to the replica that holds the Worker's link: it has something to do.
local function wake_worker(id, w)
  if w and w.link and w.link ~= '' and not w.told then
    w.told = true
    call('SPUBLISH', prefix .. 'dispatch:' .. w.link, id)
  end
end

-- Something about the Worker changed that a placement view or its agent must see. A step takes one revision at most,
-- so that the order in which it goes through a table shows nowhere.
local function touch(id)
  rev = rev or call('HINCRBY', KEYS[1], 'rev', 1)
  call('ZADD', prefix .. 'workers', rev, id)
  wake_worker(id, workers[id])
  return rev
end

-- Where the Worker stands by its start budgets: 0 below both, -1 at that of recoveries, 1 at both. They are in its record,
-- as of its last report: so whichever step ends a start knows them. Its pace multiplies both.
local function standing(w)
  local creates, recovers = w.pace * w.creates, w.pace * w.recovers
  creates, recovers = creates > 0 and w.starting >= creates, recovers > 0 and w.starting >= recovers
  return creates and recovers and 1 or (creates or recovers) and -1 or 0
end

-- Keep free:<pool> exact: the placeable Workers with a free slot, by standing plus load/capacity, which is below 1. So the
-- first entry of all is the emptiest Worker, unless there are some at one budget.
local function write_free(id, w)
  if placeable(w) and w.load < w.capacity then
    call('ZADD', prefix .. 'free:' .. w.pool, standing(w) + w.load / w.capacity, id)
  else
    call('ZREM', prefix .. 'free:' .. w.pool, id)
  end
end

local function forget_worker(id, w)
  call('DEL', prefix .. 'worker:' .. id, prefix .. 'slots:' .. id, prefix .. 'slot_revs:' .. id, prefix .. 'devices:' .. id)
  call('ZREM', prefix .. 'workers', id)
  call('ZREM', prefix .. 'free:' .. w.pool, id)
  workers[id] = false
end
