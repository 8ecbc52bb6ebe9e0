-- server: this server's name. It changes with every restart and every promotion, and sometimes without need, as when the
-- first replica comes. The only place that reads it; tests put another file here.
local function server()
  return string.match(call('INFO', 'replication'), 'master_replid:(%w+)') or 'none'
end
