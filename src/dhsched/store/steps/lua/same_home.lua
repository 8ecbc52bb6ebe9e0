-- same_home: the name of the server, compared once more behind WAIT. WAIT counts by offsets: a server that was demoted, and
-- promoted again with another history of the same length, counts replicas that do not have what the batch wrote.
--
-- KEYS     cell
-- RETURNS  the home
return home
