-- gone: a boot is over, for good. Its lives are unowned until they are placed; nothing of it is left to depart.
local function make_gone(id)
  local w = worker(id)
  if not w or w.gone then
    return
  end
  clear_moves_to(id)
  w.gone = true
  call('HSET', prefix .. 'worker:' .. id, 'gone', '1')
  call('HDEL', prefix .. 'boots', w.boot)
  touch(id)
  write_free(id, w)
  if w.load == 0 then
    forget_worker(id, w)
    return
  end
  for _, slot in ipairs(slot_table(id)) do
    if slot.state == 'departing' then
      write_slot(id, slot.live, slot.number, nil)
    elseif slot.state == 'starting' or slot.state == 'running' then
      look_by(vacate(id, slot.live, slot.number), slot.live, now)
    end
  end
end
