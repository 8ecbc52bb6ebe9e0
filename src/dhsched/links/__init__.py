"""Links between our own processes: their messages, and the outbox that every socket has."""
