"""Mutants made by a machine: how much of what the source decides does any test notice?

`make mutants` breaks one thing after the other, the same things each time, and writes into `lua.csv` and `python.csv`
what noticed it. A row stays until its file or a rule of this package changes, so a run that is stopped goes on where it
was. `survivors.txt` says of each survivor why it may live.
"""
