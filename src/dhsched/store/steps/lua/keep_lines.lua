-- keep_lines: add lines that runtimes have logged to the logs of their lives, and drop the oldest beyond the limits. A
-- Worker may write for a slot that it has, and for the current generation of a live if that is its own. Nothing is
-- decided by these lines, so this is no step of the protocol.
--
-- USES     clock now record
-- KEYS     cell
-- ARGV     lines_max, lines_bytes_max
-- EACH     live, worker_id, epoch, source, line
-- RETURNS  how many lines were kept; the others are of lives that are not the Worker's
local lines_max, lines_bytes_max = unpack(ARGV, 1, 2)
lines_max, lines_bytes_max = number(lines_max), number(lines_bytes_max)

local own = {} -- What was found, by slot: the lines of one live come together.
local function is_own(live, worker_id, epoch)
  local slot = worker_id .. ' ' .. live .. '@' .. epoch
  if own[slot] == nil then
    local selected, fence = unpack(call('HMGET', prefix .. 'live:' .. live, 'selected', 'fence'))
    local current = fence and selected == worker_id and read_fence(fence).epoch == epoch and number(epoch) > floor
    -- Without a record the live is swept, and nobody would ever delete its lines.
    own[slot] = current or (fence and call('HEXISTS', prefix .. 'slots:' .. worker_id, live .. '@' .. epoch) == 1) or false
  end
  return own[slot]
end

-- A line lies in the list as `number end time epoch worker source text`: `end` counts the bytes of all lines so far, from
-- the time on. So the first and the last line say how many bytes are kept.
local logs, changed = {}, {}
local function log_of(live)
  if not logs[live] then
    local list = prefix .. 'logs:' .. live
    local last, upto = string.match(call('LINDEX', list, -1) or '', '^(%d+) (%d+) ')
    logs[live] = { list = list, last = number(last or 0), upto = number(upto or 0), added = {} }
    changed[#changed + 1] = logs[live]
  end
  return logs[live]
end

local function keep(live, worker_id, epoch, source, line)
  if not is_own(live, worker_id, epoch) then
    return 0
  end
  local log = log_of(live)
  local rest = whole(now) .. ' ' .. epoch .. ' ' .. worker_id .. ' ' .. source .. ' ' .. line
  log.last, log.upto = log.last + 1, log.upto + #rest
  log.added[#log.added + 1] = whole(log.last) .. ' ' .. whole(log.upto) .. ' ' .. rest
  return 1
end

-- Drop the oldest lines beyond the limits; the last line always stays. `before` counts the bytes before the first line.
local function trim(log, count)
  local first = call('LINDEX', log.list, 0)
  local upto, at = string.match(first, '^%d+ (%d+) ()')
  local before = number(upto) - (#first - at + 1)
  while count > 1 and (count > lines_max or log.upto - before > lines_bytes_max) do
    before = number(string.match(call('LPOP', log.list), '^%d+ (%d+) '))
    count = count - 1
  end
end

local kept = 0
for i = 3, #ARGV, 5 do
  kept = kept + keep(unpack(ARGV, i, i + 4))
end
for _, log in ipairs(changed) do
  trim(log, call('RPUSH', log.list, unpack(log.added)))
end
return kept
