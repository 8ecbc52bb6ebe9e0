"""The share weight w: how many placements of the cell one own assignment stands for (design, 5.4).

Between two snapshots a replica sees its own assignments only, while the others rank the same snapshot and do much the
same out of sight. So an own assignment counts as w = placements of the cell / own placements, measured over the last
windows between snapshots. The number of replicas alone would be wrong whenever they share the traffic unevenly.
"""

from collections import deque

from dhsched.placement.index import MILLI

WINDOWS = 4  # Older windows are dropped: these are long enough to count, short enough to follow traffic that shifts.
PRIOR_PLACEMENTS = 4  # The even share weighs as much as this many own placements, so tiny samples cannot explode.
REPLICAS_UNKNOWN = 8  # Number of replicas R until the real number is known.
CLIP_REPLICAS = 4  # w stays within [1, CLIP_REPLICAS * R].


class ShareWeight:
    """Counts windows and keeps the weight, in thousandths."""

    __slots__ = ("_cell", "_last_placed", "_own", "_replicas", "_windows", "milli", "own_now")

    def __init__(self, replicas: int | None = None) -> None:
        self._windows: deque[tuple[int, int]] = deque(maxlen=WINDOWS)
        self._last_placed: int | None = None
        self.own_now = 0  # Own placements since the last snapshot.
        self._cell = 0
        self._own = 0
        self.replicas = replicas

    @property
    def replicas(self) -> int:
        return self._replicas

    @replicas.setter
    def replicas(self, replicas: int | None) -> None:
        self._replicas = max(1, replicas or REPLICAS_UNKNOWN)
        self._weigh()

    def close_window(self, placed: int) -> None:
        """Count a snapshot, in which the cell's counter of placements stands at `placed`."""
        if self._last_placed is not None and placed >= self._last_placed:
            self._windows.append((placed - self._last_placed, self.own_now))
        else:
            # The first snapshot measures nothing, and a counter that went back belongs to a store that lost history.
            self._windows.clear()
        self._last_placed = placed
        self.own_now = 0  # Own placements since the last snapshot.
        self._cell = sum(cell for cell, _ in self._windows)
        self._own = sum(own for _, own in self._windows)
        self._weigh()

    def _weigh(self) -> None:
        cell = self._cell + PRIOR_PLACEMENTS * self._replicas
        own = self._own + PRIOR_PLACEMENTS
        self.milli = min(max(MILLI, cell * MILLI // own), CLIP_REPLICAS * self._replicas * MILLI)
