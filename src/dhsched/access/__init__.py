"""Who may do what: API keys, the short-lived tokens that they mint, rules for every endpoint, limits per key.

`callers.py` and `rules.py` are values; `gate.py` is what a request goes through. Who only calls (a Worker, the command
line) needs `client/credentials.py` alone, which knows nothing of the store.
"""
