"""The store server that we run ourselves."""
