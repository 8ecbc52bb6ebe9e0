-- announce: an Infer-Controller is there, by the store's time; those that said so too long ago are removed. It owns
-- nothing, so this is no step of the protocol.
--
-- USES     clock now
-- KEYS     cell
-- ARGV     entry, forget_ms
-- RETURNS  the store's time
local entry, forget_ms = unpack(ARGV)

local key = prefix .. 'controllers'
call('ZADD', key, now, entry)
call('ZREMRANGEBYSCORE', key, '-inf', now - forget_ms)
return now
