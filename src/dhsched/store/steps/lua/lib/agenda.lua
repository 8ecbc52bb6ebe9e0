-- agenda: when to look at a live. `class` is the live's priority.

-- Dispatch is told that something is due now, once for a call; otherwise each replica finds it in its next round.
local told = false
local function tell_if_due(when)
  if not told and now and when <= now then
    told = true
    call('SPUBLISH', prefix .. 'due', '')
  end
end

local function look_at(class, live, when)
  call('ZADD', prefix .. 'agenda:' .. class, when, live)
  tell_if_due(when)
end

local function look_by(class, live, when)
  call('ZADD', prefix .. 'agenda:' .. class, 'LT', when, live)
  tell_if_due(when)
end

local function look_never(class, live)
  call('ZREM', prefix .. 'agenda:' .. class, live)
end
