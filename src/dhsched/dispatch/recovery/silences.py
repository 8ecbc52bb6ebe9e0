"""What one replica knows of silent Workers: Worker links and liveness write; liveness, recovery and cutovers read."""

from __future__ import annotations

import asyncio


class Silences:
    """One replica's notes about silent Workers. They are a cache: a new replica starts without any."""

    def __init__(self) -> None:
        self.hung_up: dict[str, int] = {}
        """Workers that closed their link to this replica, with their beat at that time: they are overdue sooner."""
        self.told = asyncio.Event()
        """Set when a Worker has closed its link, so that liveness reads beats now."""
        self.overdue: frozenset[str] = frozenset()
        """Workers that would be called lost by now without the brake: recovery avoids them."""
        self.refused_at = float("-inf")
        """When the store last refused a Worker's message: the Worker was alive, and its beat could not move."""

    def hang_up(self, worker: str, beat: int) -> None:
        """Note that a Worker has closed its link, without Exit, when it had this beat."""
        self.hung_up[worker] = beat
        self.told.set()
