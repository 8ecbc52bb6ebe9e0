-- register_worker: give a boot its WorkerID; the boot it replaces on its device is gone in the same step.
--
-- USES     clock now agenda record waiting worker slot live vacate gone
-- KEYS     cell
-- ARGV     name, boot, pool, capacity, labels, replaces, boots_window_ms, boots_max, term_step
-- RETURNS  REGISTERED worker mode again
local name, boot, pool, capacity, labels, replaces, boots_window_ms, boots_max, term_step = unpack(ARGV)

local known = call('HGET', prefix .. 'boots', boot)
if known then
  return { 'REGISTERED', now, known, call('HGET', prefix .. 'worker:' .. known, 'mode'), 1 }
end
if replaces ~= '' then
  make_gone(replaces)
end

local blame = call('HMGET', prefix .. 'blame:' .. name, 'since', 'boots')
local since, boots = number(blame[1] or now), number(blame[2] or 0)
if now - since >= number(boots_window_ms) then
  since, boots = now, 0
end
call('HSET', prefix .. 'blame:' .. name, 'since', since, 'boots', boots + 1)
call('PEXPIRE', prefix .. 'blame:' .. name, boots_window_ms + 3600000) -- Only to be rid of it: `since` is what counts.
local mode = boots + 1 > number(boots_max) and 'cordoned' or 'ready'

local cell = call('HMGET', KEYS[1], 'workers_issued', 'epoch_base')
local issued = math.max(number(cell[1] or 0), floor) + 1
call('HSET', KEYS[1], 'workers_issued', issued)
if issued > math.max(number(cell[2] or 0), floor) + term_step then
  call('HSET', KEYS[1], 'epoch_base', issued) -- The next term begins above it.
end
local id = name .. '#' .. whole(issued)
call('HSET', prefix .. 'boots', boot, id)
call('HSET', prefix .. 'worker:' .. id, 'name', name, 'boot', boot, 'pool', pool, 'capacity', capacity, 'labels', labels,
  'mode', mode, 'beat', 0, 'load', 0, 'starting', 0, 'slots_rev', touch(id))
return { 'REGISTERED', now, id, mode, 0 }
