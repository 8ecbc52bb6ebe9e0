"""What a replica believes of the fleet, and who waits for a free slot in it."""
