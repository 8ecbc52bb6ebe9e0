-- home: a script runs only in the home that its connection greeted, which is its last argument. What is refused here has
-- changed nothing, and is sent again after another greeting.
local greeted = table.remove(ARGV)
local greeting = call('HMGET', KEYS[1], 'home', 'epoch_floor')
local home, floor = greeting[1] or '', number(greeting[2] or 0)
if greeted ~= home then
  return redis.error_reply('HOME ' .. home)
end
