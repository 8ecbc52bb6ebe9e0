"""The store servers that dhsched runs itself.

embedded.py starts one server, embedded_cluster.py a small cluster of them; guardian.py is the process that stops a
server. shards.py says which servers of a cluster, ours or not, serve which cells.
"""
