"""What notices that a live or a Worker is in trouble, and what then happens."""
