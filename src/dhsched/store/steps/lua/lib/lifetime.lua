-- lifetime: when a look ends a live that has been idle too long, or is too old. An append reads no clock for it: a look
-- notes how much was appended, and when it saw that first (`seen`).
local IDLE_LOOKS = 4 -- Looks in one idle_ms.

-- Why the live must end now, or nil; the look has brought `seen` up to date. Only an open live has a lifetime: a closing one is ending already.
local function lifetime_over(r)
  if r.state ~= 'open' then
    return nil
  elseif r.max_ms and now >= r.created_at + r.max_ms then
    return 'age'
  elseif r.idle_ms and now >= string.match(r.seen, '%d+$') + r.idle_ms then
    return 'idle'
  end
end

-- The time `when`, or the earlier one at which the lifetime must be looked at; nil if there is neither.
local function by_lifetime(r, when)
  if r.state ~= 'open' then
    return when
  end
  if r.max_ms then
    when = math.min(when or math.huge, r.created_at + r.max_ms)
  end
  if r.idle_ms then
    local since = string.match(r.seen, '%d+$')
    when = math.min(when or math.huge, now + math.floor(r.idle_ms / IDLE_LOOKS), since + r.idle_ms)
  end
  return when
end
