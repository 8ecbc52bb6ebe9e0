-- boundary: the marks of stored items after which a live may be cut over. A sentence ends there, or it is an interrupt.
local BOUNDARY = { [84] = true, [67] = true, [73] = true, [74] = true } -- T C I J
