-- counted: a connection outlives the demotion of its server and the next promotion, and the data may be those of another
-- server then, whose home nobody has entered: so the server's name is compared as well. A call that runs is counted, and
-- its reply ends with the count: it is what its caller was told, and can compare with what a later home has kept.
if server() ~= home then
  return redis.error_reply('HOME ' .. home)
end
local pos = call('HINCRBY', KEYS[1], 'pos', 1)
