-- vacate: the current generation has no runtime any more, and never will have one again. Returns its class, its
-- starts, whether it has a move, and when it was claimed.
local function vacate(id, live, num)
  write_slot(id, live, num, 'vacant')
  local key = prefix .. 'live:' .. live
  call('HSET', key, 'active', '')
  call('HINCRBY', key, 'pull_no', 1)
  call('HDEL', key, 'note', 'stalled')
  local f = call('HMGET', key, 'priority', 'starts', 'move_target', 'claimed_at')
  return f[1], number(f[2] or 0), f[3], number(f[4] or nil)
end
