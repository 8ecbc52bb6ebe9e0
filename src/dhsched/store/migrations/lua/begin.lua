-- begin: from here on no script of a service runs in the cell: its home is over, and `enter` refuses its schema.
--
-- KEYS     cell
-- ARGV     from, to, home
-- RETURNS  BEGUN done total
--          OTHER schema     the cell has another schema; nothing was changed
local from, to, home = unpack(ARGV)
local call = redis.call
local prefix = string.sub(KEYS[1], 1, -5)
call('EXISTS', prefix .. 'never') -- As in lib/base.lua: a slot that is being moved refuses the script here or nowhere.
local f = call('HMGET', KEYS[1], 'schema', 'pos')
if f[1] ~= from then
  return { 'OTHER', f[1] or '' }
end
local time = call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
local total = call('ZCARD', prefix .. 'lives')
call('HSET', KEYS[1], 'schema', from .. '>' .. to, 'home', home)
call('RPUSH', prefix .. 'homes', home .. ' ' .. (f[2] or 0) .. ' ' .. now)
call('LTRIM', prefix .. 'homes', -64, -1)
call('DEL', prefix .. 'migrating')
call('HSET', prefix .. 'migrating', 'after', '', 'done', 0, 'total', total)
return { 'BEGUN', 0, total }
