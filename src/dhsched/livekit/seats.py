"""Seats: one identity per generation of a live, so that no generation can take another's.

In a room of LiveKit the last joiner of an identity wins. If all generations of a live had one identity, a Worker that
was frozen and goes on would join again by itself and throw the new owner out. So generation 2 of an avatar `anna` joins
as `anna~2`; its attributes say which live it is, its epoch, and, once Dispatch has granted its claim, that it is
claimed. The claimed seat with the highest epoch is the current one. The rest is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dhsched.errors import BadValue

LIVE = "dhsched.live"
EPOCH = "dhsched.epoch"
CLAIMED = "dhsched.claimed"
ON_BEHALF = "lk.publish_on_behalf"  # LiveKit's own name: whose voice and face this participant is.
METADATA = "livekit"  # In the metadata of a live.
SPEAKING, QUIET = "speaking", "quiet"  # The input of an avatar.
NAME_CHARS_MAX = 200  # A longer name of a room, an avatar or an agent is refused.


@dataclass(frozen=True, slots=True)
class Seat:
    """A participant that is a generation of a live."""

    identity: str
    live: str
    epoch: int
    claimed: bool


def seat_of(identity: str, attributes: Mapping[str, str]) -> Seat | None:
    """Return the seat of a participant; None if it is no generation of a live."""
    epoch = attributes.get(EPOCH, "")
    if not attributes.get(LIVE) or not epoch.isascii() or not epoch.isdigit():
        return None
    return Seat(identity, attributes[LIVE], int(epoch), attributes.get(CLAIMED) == "1")


def current(seats: Iterable[Seat], live: str) -> Seat | None:
    """Return the claimed seat of this live with the highest epoch."""
    claimed = (seat for seat in seats if seat.live == live and seat.claimed)
    return max(claimed, key=lambda seat: seat.epoch, default=None)


def lower(seats: Iterable[Seat], live: str, epoch: int) -> list[Seat]:
    """Return the seats of earlier generations of this live."""
    return [seat for seat in seats if seat.live == live and seat.epoch < epoch]


@dataclass(frozen=True, slots=True)
class Call:
    """Where a live takes part: the room, the name that its identities begin with, and the agent whose face it is."""

    room: str
    name: str
    agent: str = ""

    def identity(self, epoch: int) -> str:
        return f"{self.name}~{epoch}"

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the metadata to create the live with; `call_of` reads it back."""
        return {METADATA: {"room": self.room, "name": self.name, "agent": self.agent}}


def call_of(metadata: Mapping[str, Any], name: str) -> Call:
    """Return the call that a live was created for; `name` is for metadata without a name."""
    given = metadata.get(METADATA)
    if not isinstance(given, Mapping):
        raise BadValue(f'the metadata of the live has no object "{METADATA}" with a room: {{"room": "room-1"}}')
    made = Call(given.get("room", ""), given.get("name") or name, given.get("agent", ""))
    for what, value in (("room", made.room), ("name", made.name), ("agent", made.agent)):
        if not isinstance(value, str) or len(value) > NAME_CHARS_MAX:
            raise BadValue(f'"{what}" in the metadata "{METADATA}" is no text of at most {NAME_CHARS_MAX} characters')
    if not made.room:
        raise BadValue(f'the metadata "{METADATA}" of the live names no room')
    return made
