-- clock: the store's own time in whole milliseconds. The only place that reads it; tests put another file here.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
