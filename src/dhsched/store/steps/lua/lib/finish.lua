-- finish: the end of a live. Everything it holds is given back; what is left of its input is dropped, and counted.
local function finish(live, r, ended_ttl_ms)
  local key = prefix .. 'live:' .. live
  clear_move(live, r)
  local vacant = slot_of(r.selected, live, r.epoch) == 'vacant'
  write_slot(r.selected, live, r.epoch, not vacant and 'departing' or nil)
  leave_waiting(live, r)
  local appended = number(r.appended or 0)
  local dropped = appended - number(r.acked or 0)
  call('HDEL', key, 'note', 'stalled')
  call('HSET', key, 'active', '', 'state', 'ended', 'released', appended, 'acked', appended, 'acked_mark', '',
    'suspect', '', 'ended_at', now)
  if dropped > 0 then
    call('HINCRBY', key, 'dropped_end', dropped)
  end
  for field in pairs(r) do
    if string.sub(field, 1, 5) == 'from:' then
      call('HDEL', key, field)
    end
  end
  call('DEL', prefix .. 'input:' .. live, prefix .. 'recent:' .. live)
  call('ZADD', prefix .. 'ended', 0, live)
  look_at(r.priority, live, now + ended_ttl_ms)
end
