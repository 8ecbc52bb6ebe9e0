-- walk: migrate the next lives, and note how far that is, in one call. The last call writes the new schema.
--
-- Before this text stands that of the migration, which defines `migrate_live(prefix, live)`.
--
-- KEYS     cell
-- ARGV     from, to, batch
-- RETURNS  MORE done total
--          DONE done total
--          OTHER schema     the cell has another schema; nothing was changed
local from, to, batch = unpack(ARGV)
local call = redis.call
local prefix = string.sub(KEYS[1], 1, -5)
call('EXISTS', prefix .. 'never')
local schema = call('HGET', KEYS[1], 'schema')
if schema ~= from .. '>' .. to then
  return { 'OTHER', schema or '' }
end
local key = prefix .. 'migrating'
local f = call('HMGET', key, 'after', 'done', 'total')
local after = f[1] and f[1] ~= '' and '(' .. f[1] or '-'
local lives = call('ZRANGEBYLEX', prefix .. 'lives', after, '+', 'LIMIT', 0, batch)
for _, live in ipairs(lives) do
  migrate_live(prefix, live)
end
local done, total = tonumber(f[2] or 0) + #lives, tonumber(f[3] or 0)
if #lives < tonumber(batch) then
  call('HSET', KEYS[1], 'schema', to)
  call('DEL', key)
  return { 'DONE', done, total }
end
call('HSET', key, 'after', lives[#lives], 'done', done)
return { 'MORE', done, total }
