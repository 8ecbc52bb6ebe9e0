"""Publishers of one live in the same process: what a `LiveRoom` is tested with, without sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dhsched.client.models.base import UNSET
from dhsched.client.models.lives import Generation, PublishingOut
from dhsched.room.fence import Admitted
from dhsched.room.live_room import LiveRoom
from dhsched.room.packets import VIDEO, Packet

KEYFRAME, FRAME = Packet(VIDEO, True, 0, b"k"), Packet(VIDEO, False, 0, b"f")


def said(epoch: int, current: int, home: str, live: str = "default/L", cell: str = "") -> PublishingOut:
    """Dispatch's answer; the Worker of each generation is named after its number."""
    current_one, live_id = Generation(f"w#{current}", current), live.partition("/")[2]
    return PublishingOut(live, live_id, f"w#{epoch}", epoch, current_one, "", "open", home, cell or UNSET)


class Hand:
    """A publisher that counts what the room does to it."""

    def __init__(self, epoch: int, ask: Callable[[], Awaitable[object]] | None = None) -> None:
        self.epoch, self.worker, self.cause = epoch, f"w#{epoch}", "create"
        self.keyframes = self.asked = 0
        self.over = ""
        self._ask = ask

    def want_keyframe(self) -> None:
        self.keyframes += 1

    def superseded(self, epoch: int) -> None:
        self.over = f"superseded by {epoch}"

    def replaced(self) -> None:
        self.over = "replaced"

    def ended(self) -> None:
        self.over = "ended"

    async def confirm(self) -> None:
        self.asked += 1
        if self._ask is not None:
            await self._ask()


def on_air(room: LiveRoom, epoch: int, home: str) -> Hand:
    """A publisher of the current generation, on air."""
    hand = Hand(epoch)
    assert room.admit(said(epoch, epoch, home)) == Admitted()
    room.join(hand)
    assert room.hear(hand, KEYFRAME) and room.on_air == epoch
    return hand
