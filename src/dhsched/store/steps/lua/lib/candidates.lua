-- candidates: whom a caller asks, and the emptiest of those that stand equal.
--
-- One candidate is a WorkerID, or `pool=id=id...`: Workers of one Pool of which none comes before another. Returns the
-- ids, and the Pool if they are equals.
local function asked(candidate)
  local ids = {}
  for id in string.gmatch(candidate, '[^=]+') do
    ids[#ids + 1] = id
  end
  return ids, #ids > 1 and table.remove(ids, 1)
end

-- Of these Workers of a Pool, the emptiest that has a free slot and has reached at most `reach` of its start budgets; the
-- first of those that are equally empty. Also the entries of all in free:<pool>, false where there is none.
local function emptiest(pool, ids, reach)
  local scores = call('ZMSCORE', prefix .. 'free:' .. pool, unpack(ids))
  local low, high = reach > 0 and -1 or 0, math.max(reach, 1)
  local best, lowest
  for i, id in ipairs(ids) do
    local score = number(scores[i] or '')
    if score and score >= low and score < high and (not best or score % 1 < lowest) then
      best, lowest = id, score % 1
    end
  end
  return best, scores
end
