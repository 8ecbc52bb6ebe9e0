"""The store server that dhsched runs itself (embedded.py), and the process that stops it (guardian.py)."""
