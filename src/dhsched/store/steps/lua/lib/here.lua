-- here: a connection outlives the demotion of its server and the next promotion, and the data may be those of another
-- server then, whose home nobody has entered: so the server's name is compared as well.
if not server_is(home) then
  return redis.error_reply('HOME ' .. home)
end
