"""A RESP3 client: one connection that mends itself. It knows nothing of dhsched."""
