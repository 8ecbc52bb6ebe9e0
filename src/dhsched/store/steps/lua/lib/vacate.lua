-- vacate: the current generation has no runtime any more, and never will have one again. Returns its class, its
-- starts, whether it has a move, and when it was claimed.
local function vacate(id, live, num)
  write_slot(id, live, num, 'vacant')
  local key = prefix .. 'live:' .. live
  local f = call('HMGET', key, 'priority', 'starts', 'move_target', 'claimed_at', 'fence')
  local r = read_fence(f[5])
  r.unclaimed, r.first, r.pull_no = '', nil, r.pull_no + 1
  write_fence(live, r)
  call('HDEL', key, 'note', 'stalled')
  return f[1], number(f[2] or 0), f[3], number(f[4] or nil)
end
