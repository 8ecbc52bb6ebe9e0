-- base: what every step starts from. Keys are only ever built under the cell's prefix, which is KEYS[1] without its
-- last word, `cell`.
local call, number = redis.call, tonumber
local prefix = string.sub(KEYS[1], 1, -5)
local now -- The store's time, in steps that use `now`.
