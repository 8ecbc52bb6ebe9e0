-- finish: the end of a live. Everything it holds is given back; what is left of its input is dropped, and counted.
local function finish(live, r, ended_ttl_ms)
  local key = prefix .. 'live:' .. live
  clear_move(live, r)
  local slot = slot_of(r.selected, live, r.epoch)
  write_slot(r.selected, live, r.epoch, slot ~= 'vacant' and 'departing' or nil, nil, slot)
  leave_waiting(live, r)
  local dropped = r.appended - r.acked
  call('HDEL', key, 'note', 'stalled')
  r.state, r.unclaimed, r.first, r.suspect = 'ended', '', nil, nil
  r.released, r.acked, r.acked_mark = r.appended, r.appended, ''
  call('HSET', key, 'fence', fence_text(r), 'cursors', cursors_of(r), 'ended_at', now)
  if dropped > 0 then
    call('HINCRBY', key, 'dropped_end', dropped)
  end
  for field in pairs(r) do
    if string.sub(field, 1, 5) == 'from:' then
      call('HDEL', key, field)
    end
  end
  call('DEL', prefix .. 'input:' .. live, prefix .. 'recent:' .. live, prefix .. 'journal:' .. live)
  call('HDEL', prefix .. 'data:' .. live, 'journal_last', 'journal_bytes')
  call('ZADD', prefix .. 'ended', 0, live)
  look_at(r.priority, live, now + ended_ttl_ms)
end
