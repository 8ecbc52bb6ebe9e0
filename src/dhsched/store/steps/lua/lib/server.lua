-- server: this server's name. It changes with every restart and every promotion, and sometimes without need, as when the
-- first replica comes. The only place that reads it; tests put another file here.
local function server()
  return string.match(call('INFO', 'replication'), 'master_replid:(%w+)') or 'none'
end
-- Whether this is its name. Almost every call asks, and a plain search takes an eighth of the time of a pattern.
local function server_is(name)
  return string.find(call('INFO', 'replication'), 'master_replid:' .. name .. '\r', 1, true)
    or name == 'none' and server() == 'none'
end
