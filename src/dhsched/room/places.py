"""Places: one for each viewer's connection, from its offer to its end. They are limited, in all and for each address
and viewer.

An offer costs its sender nothing, so offers whose connection is not up yet have lower limits of their own. A viewer
whose page works sends its first packets (STUN) at once. So at these limits the oldest offer that has not sent any makes
way, if it is KEPT_S old, and offers that never connect do not keep others out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dhsched.access.viewers import VerifiedViewer
from dhsched.room.settings import RoomSettings
from dhsched.web import Problem

KEPT_S = 0.5  # An offer younger than this does not make way: its viewer had no time to send a packet.
SHARE = 4  # One address gets at most one part in so many, unless its limit is set.


@dataclass(slots=True, eq=False)
class Place:
    """The place of one connection. `heard`: the viewer's packets have arrived; `connected`: its connection is up."""

    address: str
    viewer: VerifiedViewer
    live: str
    since: float
    heard: bool = False
    connected: bool = False
    leave: Callable[[], None] | None = field(default=None)
    """Ends the connection; None until the offer is answered."""


class Places:
    """The places of one room process."""

    def __init__(self, settings: RoomSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._taken: dict[Place, None] = {}
        self.given_up = 0
        self.refused = 0

    @property
    def all(self) -> list[Place]:
        return [*self._taken]

    @property
    def offers(self) -> int:
        """Return how many offers have no connection yet."""
        return sum(not place.connected for place in self._taken)

    def take(self, *, address: str, viewer: VerifiedViewer, live: str) -> Place:
        """Return a place for one more connection, or raise Problem BUSY. The narrowest limit is checked first."""
        given = self._settings
        here = [place for place in self._taken if place.address == address]
        if viewer.kid:
            own = [place for place in self._taken if (place.live, place.viewer.name) == (live, viewer.name)]
            self._check(own, given.connections_per_viewer_max, "connections of this viewer")
        self._check(here, share(given.viewers_per_address_max, given.viewers_max), "viewers at this address")
        self._check([*self._taken], given.viewers_max, "viewers")
        self._make_way(
            lambda place: place.address == address,
            share(given.offers_per_address_max, given.offers_max),
            "offers in progress from this address",
        )
        self._make_way(lambda _place: True, given.offers_max, "offers in progress")
        place = Place(address, viewer, live, self._clock())
        self._taken[place] = None
        return place

    def free(self, place: Place) -> None:
        self._taken.pop(place, None)

    def _check(self, taken: list[Place], limit: int, what: str) -> None:
        if len(taken) >= limit:
            self.refused += 1
            raise Problem("BUSY", f"this room has {len(taken)} {what}, and takes at most {limit}; try again later")

    def _make_way(self, among: Callable[[Place], bool], limit: int, what: str) -> None:
        offers = [place for place in self._taken if not place.connected and among(place)]
        if len(offers) < limit:
            return
        now = self._clock()
        for place in offers:  # The oldest first.
            if not place.heard and place.leave is not None and now - place.since >= KEPT_S:
                self.given_up += 1
                place.leave()
                return
        self._check(offers, limit, what)


def share(limit: int, total: int) -> int:
    """Return the limit of one address: `limit`, or one part in SHARE of `total` if it is 0."""
    return limit or -(-total // SHARE)
