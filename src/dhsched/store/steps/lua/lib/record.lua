-- record: the two fields of a live's record that every item of input needs. Each is a text of several values, because a
-- step pays more for a field than for reading a text. Its twin is store/record.py.
--
-- cursors   `appended released acked config_next at_boundary acked_mark`. The mark is empty while nothing is acked.
-- fence     `epoch pull_no state`, then a word for each thing that is not as usual, in the order of FENCE_WORDS. So where
--           input simply flows, the fence is `epoch pull_no open`, and one comparison shows it.
local FENCE_WORDS = { 'unclaimed', 'first', 'hold', 'suspect', 'waiting', 'fallback' }

-- The cursors as they are written. To make a number of a text or a text of a number takes longer than to find it here, so
-- the steps of the input path do either only where they must: join_cursors puts the texts together again.
local function split_cursors(text)
  return match(text, '^(%d+) (%d+) (%d+) (%d+) ([01]) (.*)$')
end

local function join_cursors(appended, released, acked, config_next, at_boundary, acked_mark)
  return appended .. ' ' .. released .. ' ' .. acked .. ' ' .. config_next .. ' ' .. at_boundary .. ' ' .. acked_mark
end

local function read_cursors(text)
  local appended, released, acked, config_next, at_boundary, acked_mark = split_cursors(text)
  return appended + 0, released + 0, acked + 0, config_next + 0, at_boundary, acked_mark
end

local function cursors_text(appended, released, acked, config_next, at_boundary, acked_mark)
  return string.format('%d %d %d %d %s %s', appended, released, acked, config_next, at_boundary, acked_mark)
end

local function cursors_of(r)
  return cursors_text(r.appended, r.released, r.acked, r.config_next, r.at_boundary, r.acked_mark)
end

-- The fence as a table: epoch, pull_no and state as text, and the words that are there; a word without a value is empty.
local function read_fence(text)
  local epoch, pull_no, state, rest = match(text, '^(%d+) (%d+) (%a+)(.*)$')
  local r = { epoch = epoch, pull_no = pull_no, state = state }
  for word, value in string.gmatch(rest, ' (%a+)=?(%S*)') do
    r[word] = value
  end
  return r
end

local function fence_text(r)
  local text = string.format('%d %d %s', r.epoch, r.pull_no, r.state)
  for _, word in ipairs(FENCE_WORDS) do
    local value = r[word]
    if value then
      text = text .. ' ' .. word .. (value ~= '' and '=' .. value or '')
    end
  end
  return text
end

local function write_fence(live, r)
  call('HSET', prefix .. 'live:' .. live, 'fence', fence_text(r))
end
