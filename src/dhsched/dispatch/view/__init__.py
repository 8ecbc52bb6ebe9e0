"""The replica's view of the fleet (`fleet_view`), and the creates that wait for a free slot in it (`create_queue`);
what changes in it, for readers (`changes`).

Each refresh of the view calls `Fleet.on_refresh`, which wakes as many waiting creates as the view shows free slots.
"""
