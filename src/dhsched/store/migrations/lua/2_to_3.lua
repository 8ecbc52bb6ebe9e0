-- 2 to 3: fifteen fields of a live's record become two texts, `fence` and `cursors`, and fields that are not set are left
-- out. The four fields that every item of input needs stand first: the record is searched from its start.
local INTO_TEXTS = {}
for field in string.gmatch('epoch active pull_no state appended released acked acked_mark move_hold suspect at_boundary '
  .. 'config_next fallback', '%S+') do
  INTO_TEXTS[field] = true
end
local FIRST = { 'selected', 'fence', 'cursors', 'priority' }
local FIELDS_AT_ONCE = 500 -- A call takes a few thousand arguments; a record may have as many producers.

local function fence_of(f)
  local words = { f.epoch, f.pull_no or '0', f.state }
  local function add(word)
    words[#words + 1] = word
  end
  if not f.active then
    add('unclaimed')
  elseif not f.first_ack_at then
    add('first')
  end
  if f.move_hold then
    add('hold=' .. f.move_hold)
  end
  if f.suspect then
    add('suspect=' .. string.gsub(f.suspect, ' ', ':'))
  end
  if f.waits then
    add('waiting')
  end
  if f.fallback then
    add('fallback')
  end
  return table.concat(words, ' ')
end

local function cursors_of(f)
  return table.concat({ f.appended or '0', f.released or '0', f.acked or '0', f.config_next or '0', f.at_boundary or '0',
    f.acked_mark or '' }, ' ')
end

-- When the live was created: the first generation that is known was committed then, or later.
local function created_at(prefix, live, f)
  local history = redis.call('GET', prefix .. 'history:' .. live) or ''
  return string.match(history, '^%d+ %S+ %S+ %S+ (%d+)') or f.committed_at
end

local function migrate_live(prefix, live)
  local key = prefix .. 'live:' .. live
  local flat, f = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    if flat[i + 1] ~= '' then
      f[flat[i]] = flat[i + 1]
    end
  end
  if not f.epoch or f.fence then
    return -- There is no record, or it has the new form.
  end
  f.fence, f.cursors, f.created_at = fence_of(f), cursors_of(f), f.created_at or created_at(prefix, live, f)
  local fields = {}
  local function take(field)
    fields[#fields + 1], fields[#fields + 2] = field, f[field]
    f[field] = nil
  end
  for _, field in ipairs(FIRST) do
    take(field)
  end
  local rest = {}
  for field in pairs(f) do
    if not INTO_TEXTS[field] then
      rest[#rest + 1] = field
    end
  end
  table.sort(rest)
  for _, field in ipairs(rest) do
    take(field)
  end
  redis.call('DEL', key)
  for first = 1, #fields, 2 * FIELDS_AT_ONCE do
    redis.call('HSET', key, unpack(fields, first, math.min(#fields, first + 2 * FIELDS_AT_ONCE - 1)))
  end
end
