-- needs: why the live must be placed anew, or nil. `look` says so, `place` checks that it is still so.
local function needs(live, r)
  if r.state == 'ended' then
    return nil
  end
  local w = worker(r.selected)
  if number(r.epoch) <= floor then
    return 'floor'
  elseif w.gone then
    return 'gone'
  elseif w.lost then
    return 'lost'
  elseif slot_of(r.selected, live, r.epoch) == 'vacant' then
    return 'vacant'
  elseif r.stalled == progress(r) then
    return 'stalled'
  end
end
