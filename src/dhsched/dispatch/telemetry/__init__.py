"""What is counted, written down and told."""
