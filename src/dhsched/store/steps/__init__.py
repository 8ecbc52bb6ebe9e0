"""The steps of the protocol as calls: on a real server, and on the model in memory.

Words: a *step* is one atomic change of a cell; an *outcome* is its result as a value; a script *around* the protocol
reads or records, and changes no ownership.
Walk: api.py checks the arguments of a step, redis.py binds them to its script (scripts.py loads lua/) and runs it on
the link, replies.py decodes the reply to an outcome; memory.py runs the model instead.
"""
