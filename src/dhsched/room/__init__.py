"""The room: viewers stay in it while Workers come and go; what a superseded Worker makes is dropped (docs/room.md)."""
