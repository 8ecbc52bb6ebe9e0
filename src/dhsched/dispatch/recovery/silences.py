"""What one replica knows of silent Workers: its Worker links write it, liveness, recovery and cutovers read it."""

from __future__ import annotations


class Silences:
    """A cache, like everything in a replica: a new one starts empty and finds out by itself."""

    def __init__(self) -> None:
        self.hung_up: dict[str, int] = {}
        """Workers that closed their link to this replica, and their beat then: the next beat must come sooner."""
        self.overdue: frozenset[str] = frozenset()
        """Workers that would be called lost by now, but for the brake: recovery tries them last."""
        self.refused_at = float("-inf")
        """When the store last refused what a Worker reported: the Worker was there, and its beat could not move."""
