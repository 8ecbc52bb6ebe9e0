-- base: what every step starts from. Keys are only ever built under the cell's prefix, which is KEYS[1] without its
-- last word, `cell`.
local call, number = redis.call, tonumber
local match, sub = string.match, string.sub -- For what runs for every item: a name in a table takes longer to find.
local prefix = string.sub(KEYS[1], 1, -5)
-- While a cluster moves our slot to another node, a script is refused at the first key that does not exist, and what it
-- wrote before stays. This key never exists: a script is refused here, before its first write, or nowhere.
call('EXISTS', prefix .. 'never')
-- A number as text. Lua by itself writes 14 digits, and from 10^14 on another number than it is.
local function whole(n) return string.format('%d', n) end
local now -- The store's time, in steps that use `now`.
