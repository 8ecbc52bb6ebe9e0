-- home: a script runs only in the home that its connection greeted, which is its last argument. What is refused here has
-- changed nothing, and is sent again after another greeting.
local greeted = table.remove(ARGV)
local cell = call('HMGET', KEYS[1], 'home', 'epoch_floor', 'epoch_base', 'pull_base')
local home, floor, epoch_base, pull_base = cell[1] or '', number(cell[2] or 0), number(cell[3] or 0), number(cell[4] or 0)
if greeted ~= home then
  return redis.error_reply('HOME ' .. home)
end
