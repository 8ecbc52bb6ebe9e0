-- read_fields: some fields of many records of one kind. It only reads; each record is read as it is at this moment.
--
-- KEYS     cell
-- ARGV     kind, names, fields
-- RETURNS  the values of all fields of each name, in their order; a field that does not exist has no value
local kind, names, fields = unpack(ARGV)

local wanted = {}
for field in string.gmatch(fields, '%S+') do
  wanted[#wanted + 1] = field
end
local reply, n, key = {}, 0, prefix .. kind .. ':'
for name in string.gmatch(names, '%S+') do
  local values = call('HMGET', key .. name, unpack(wanted))
  for i = 1, #wanted do
    reply[n + i] = values[i]
  end
  n = n + #wanted
end
return reply
