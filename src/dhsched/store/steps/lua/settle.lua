-- settle: the last write of a batch whose answers must survive a promotion. WAIT behind it counts the replicas that have
-- this write, and with it everything that the batch wrote or read. A batch that only reads needs it too: WAIT goes by the
-- connection's own last write, and an answer may tell of somebody else's.
--
-- KEYS     cell
-- RETURNS  how often the cell was settled
return call('HINCRBY', KEYS[1], 'settled', 1)
