"""`dhsched calibrate`: how many lives may speak at once on one Worker before their output comes late.

Words: the *pace* of a live is the time from one ack to the next while the live always has something to say, with the
output that its runtime reports as late meanwhile; lives are *late* if the slowest pace is above the limit; a *step*
measures one number of lives.
Walk: `calibrate` (drive.py) starts a private deployment, with a room, and a Worker that prints its acks
(timed_worker.py), asks `Search` (search.py) for the next number of lives, keeps so many speaking, and takes the pace of
each.
"""
