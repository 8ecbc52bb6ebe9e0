"""A Dispatch replica of a deployment that has several cells (cells/fixed.py).

In each cell the replica is what a replica of one cell is: its own links, view, limits and loops (`served`), so a cell
that stands still stops nobody else. The endpoints are those of one cell: a request that names a live or a Worker goes
to its cell, and a list is made of what all cells answer (`front`, `answers`, `streams`). The configuration and the keys
are written in the first cell and copied to the others (`copies`).
"""
