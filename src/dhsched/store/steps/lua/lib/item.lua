-- item: what is read of an input item, which is its sign, its mark of eight bytes, and a payload that nobody reads here.

-- Whether item `n`, as the caller has it, is of the history that this store has. Below `acked` nothing is known. Where
-- it is not, the store has forgotten what this generation has: then its end is no fault of an item. `item` is item n,
-- where the step has read it.
local function fits(live, n, mark, acked, acked_mark, appended, item)
  local known
  if n == 0 or n < acked then
    return true
  elseif n == acked then
    known = acked_mark
  elseif n <= appended then
    known = sub(item or call('LINDEX', prefix .. 'input:' .. live, n - acked - 1), 2, 9)
  end
  if mark ~= known then
    call('HSET', prefix .. 'live:' .. live, 'forgot', '1')
  end
  return mark == known
end

-- The configuration that an item brings with it, or nil.
local function config_of(item)
  local sign = sub(item, 1, 1)
  if sign == 'c' or sign == 'C' then
    return sub(item, 10)
  elseif sign == 'J' then
    local size, at = match(item, '^J........(%d+):()')
    return sub(item, at, at + size - 1)
  end
end
