"""What a replica believes of the fleet, and who waits for room in it."""
