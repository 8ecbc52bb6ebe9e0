"""The room: viewers stay in it while Workers come and go; what a superseded Worker makes is dropped.

See docs/guides/room.md.
"""
