-- counted: a call that runs is counted, and its reply ends with the count: it is what its caller was told, and can compare
-- with what a later home has kept.
local pos = call('HINCRBY', KEYS[1], 'pos', 1)
