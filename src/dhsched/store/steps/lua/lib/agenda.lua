-- agenda: when to look at a live. `class` is the live's priority.
local function look_at(class, live, when)
  call('ZADD', prefix .. 'agenda:' .. class, when, live)
end

local function look_by(class, live, when)
  call('ZADD', prefix .. 'agenda:' .. class, 'LT', when, live)
end

local function look_never(class, live)
  call('ZREM', prefix .. 'agenda:' .. class, live)
end
