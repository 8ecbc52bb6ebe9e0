"""The store: everything that dhsched keeps on a Valkey or Redis server.

Words: a *cell* is one deployment's data, under one key prefix; a *step* changes ownership; *records* are reads and
writes beside the steps; the *link* is the connection that both use.
Walk: steps/ and records/ call link/ with the names of keys.py; server/ runs a server if none is given; raw.py reads a
whole cell back.
"""
