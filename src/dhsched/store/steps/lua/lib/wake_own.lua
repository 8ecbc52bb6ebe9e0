-- wake_own: a Worker's own lives that wait for another place may not need one any more, or have it here: look now.
local function wake_own(id)
  for _, slot in ipairs(slot_table(id)) do
    if OWNED[slot.state] then
      local f = call('HMGET', prefix .. 'live:' .. slot.live, 'waits', 'priority')
      if f[1] then
        look_by(f[2], slot.live, now)
      end
    end
  end
end

-- The Worker became placeable: it has a free slot, and those who wait for a free slot are due.
local function enter_free(id, w, walk_max)
  touch(id)
  write_free(id, w)
  wake_waiting(w.pool, math.min(w.capacity - w.load, walk_max))
  wake_own(id)
end
