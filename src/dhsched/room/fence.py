"""The fence of output: which generation's media reaches the viewers of one live. Pure.

Input is fenced in the store; media is fenced here, because a superseded Worker still has its earlier input, and may go
on speaking, or thaw in the middle of a word. The rules:

    admit   A publisher shows a token. Dispatch says which generation the token is for and which one is current.
            Equal: it may publish. Lower: it is superseded. Higher, or another Worker's: it was never issued.
            Asked for every connection, so a room that has just started and remembers nothing is no way around it.
    join    The connection begins, once its first message fits its token.
    hear    The first packet of a generation makes it the highest that has published. From then on lower ones are
            dropped for good. The highest is on air from its first keyframe: before, it has no picture to show.
    silence A publisher that was silent for SILENCE_MAX_S may have been frozen while the live moved on. Dispatch is
            asked about the publisher again before its next packet passes.
    end     The live has ended: nobody is on air. Its publishers are disconnected, and refused when they come back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from dhsched.types import Generation

SILENCE_MAX_S = 1.0  # After longer silence Dispatch is asked. Packets are 20 ms apart; a lost Worker takes far longer.


@dataclass(frozen=True, slots=True)
class Fence:
    """The state of one live's fence."""

    highest: int = 0
    on_air: int = 0


@dataclass(frozen=True, slots=True)
class Admitted:
    """The publisher may publish."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """The live has moved on, to `epoch` or further."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NeverIssued:
    """No such generation exists: a forged token, or one from a history that the store has lost."""

    reason: str


class Verdict(Enum):
    """What the room does with one packet."""

    STALE = "stale"
    WAIT = "wait for a keyframe"
    TAKE_OVER = "take over"
    FORWARD = "forward"


def admit(fence: Fence, asking: Generation, current: Generation) -> Admitted | Superseded | NeverIssued:
    if asking.epoch > current.epoch:
        return NeverIssued(f"epoch {asking.epoch} was never issued, the current one is {current.epoch}")
    if asking.epoch < max(current.epoch, fence.highest):
        return Superseded(max(current.epoch, fence.highest))
    if asking.worker != current.worker:
        return NeverIssued(f"epoch {asking.epoch} is {current.worker}'s, not {asking.worker}'s")
    return Admitted()


def join(fence: Fence, epoch: int) -> Fence:
    """Return the fence after a new connection begins. If its generation is already on air, packets may have been lost
    between the two connections, so the generation takes over from itself at the next keyframe."""
    return replace(fence, on_air=0) if fence.on_air == epoch else fence


def hear(fence: Fence, epoch: int, *, keyframe: bool) -> tuple[Fence, Verdict]:
    """Return the fence and the verdict after one packet of an admitted publisher; `keyframe` is for video only."""
    if epoch < fence.highest:
        return fence, Verdict.STALE
    if epoch == fence.on_air:
        return fence, Verdict.FORWARD
    if keyframe:
        return Fence(highest=epoch, on_air=epoch), Verdict.TAKE_OVER
    return replace(fence, highest=epoch), Verdict.WAIT


def end(fence: Fence) -> Fence:
    """Return the fence of an ended live. `highest` stays: epochs never repeat, even if the live's id is used again."""
    return replace(fence, on_air=0)


def must_ask_again(silent_s: float) -> bool:
    return silent_s > SILENCE_MAX_S
