"""The fence of output: which generation's media reaches the viewers of one live. Pure.

Input is fenced in the store; media is fenced here, because a superseded Worker still has its earlier input, and may go
on speaking, or thaw in the middle of a word. The rules:

    admit   A publisher shows a token. Dispatch says which generation the token is for and which one is current.
            Equal: it may publish. Lower: it is superseded. Higher, or another Worker's: it was never issued.
            Asked for every connection, so a room that has just started and remembers nothing is no way around it.
    home    Dispatch also says in which home of the store it has read. In another home the store may have forgotten
            generations, and numbers of two homes have no order. So an answer of another home empties what the room
            has heard and whom it has admitted: Dispatch is asked about each publisher before its next packet passes.
            Who is on air stays so, and goes on without a keyframe once it is admitted: none of its packets is missing.
    join    The connection begins, once its first message fits its token.
    hear    The first packet of a generation makes it the highest that has published. From then on lower ones are
            dropped as long as this home lasts. The highest is on air from its first keyframe: before, it has no
            picture to show.
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
    """The state of one live's fence. `highest` and `admitted` are epochs of `home`, and mean nothing in another."""

    home: str = ""
    highest: int = 0
    admitted: frozenset[int] = frozenset()
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


def admit(
    fence: Fence, asking: Generation, current: Generation, *, home: str
) -> tuple[Fence, Admitted | Superseded | NeverIssued]:
    """Return the fence after Dispatch's answer about `asking`, and whether that generation may publish.

    A generation that was admitted in this home and is superseded now stays admitted: its picture is shown until its
    successor publishes.
    """
    fence = in_home(fence, home)
    verdict = judge(fence, asking, current)
    if isinstance(verdict, Admitted):
        return replace(fence, admitted=fence.admitted | {asking.epoch}), verdict
    if isinstance(verdict, NeverIssued):
        return leave(fence, asking.epoch), verdict
    return fence, verdict


def in_home(fence: Fence, home: str) -> Fence:
    """Return the fence after an answer that was read in `home`. An older replica says nothing of homes, and changes
    nothing here."""
    return fence if home in ("", fence.home) else Fence(home=home, on_air=fence.on_air)


def judge(fence: Fence, asking: Generation, current: Generation) -> Admitted | Superseded | NeverIssued:
    if asking.epoch > current.epoch:
        return NeverIssued(f"epoch {asking.epoch} was never issued, the current one is {current.epoch}")
    if asking.epoch < max(current.epoch, fence.highest):
        return Superseded(max(current.epoch, fence.highest))
    if asking.worker != current.worker:
        return NeverIssued(f"epoch {asking.epoch} is {current.worker}'s, not {asking.worker}'s")
    return Admitted()


def must_ask(fence: Fence, epoch: int, *, silent_s: float) -> bool:
    """Return whether Dispatch must be asked about a publisher before its next packet passes."""
    return epoch not in fence.admitted or silent_s > SILENCE_MAX_S


def join(fence: Fence, epoch: int) -> Fence:
    """Return the fence after a new connection begins. If its generation is already on air, packets may have been lost
    between the two connections, so the generation takes over from itself at the next keyframe."""
    return replace(fence, on_air=0) if fence.on_air == epoch else fence


def hear(fence: Fence, epoch: int, *, keyframe: bool) -> tuple[Fence, Verdict]:
    """Return the fence and the verdict after one packet of an admitted publisher; `keyframe` is for video only."""
    assert epoch in fence.admitted, f"epoch {epoch} is heard before Dispatch was asked about it"
    if epoch < fence.highest:
        return fence, Verdict.STALE
    if epoch > fence.highest:
        fence = replace(fence, highest=epoch)
    if epoch == fence.on_air:
        return fence, Verdict.FORWARD
    if keyframe:
        return replace(fence, on_air=epoch), Verdict.TAKE_OVER
    return fence, Verdict.WAIT


def leave(fence: Fence, epoch: int) -> Fence:
    """Return the fence after the last connection of a generation: the next one is asked about anyway."""
    return replace(fence, admitted=fence.admitted - {epoch})


def end(fence: Fence) -> Fence:
    """Return the fence of an ended live. `highest` stays: epochs never repeat, even if the live's id is used again."""
    return replace(fence, admitted=frozenset(), on_air=0)
