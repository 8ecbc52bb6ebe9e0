"""The steps of the protocol as calls: on a real server, and on the model in memory."""
