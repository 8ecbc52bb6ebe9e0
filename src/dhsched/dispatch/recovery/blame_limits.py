"""Blame: when a Worker has had so much trouble that it gets no new lives. The pure decision.

Blame is kept by the Worker's *name*, because a machine that loses its Worker again and again comes back under a new
boot each time. Three kinds are counted within a window, and what is older is forgotten:

- *loss*: the Worker was called lost, each time once;
- *stall*: a live on it stood still over two looks;
- *crash*: a live's runtime on it ended by itself.

Stalls and crashes are counted by *live*: one live that crashes all day says more about the live than about the Worker.
And a fault of everybody (a bad release, a bad input) must not cordon everybody: only a share of a Pool may be out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Trouble = Literal["loss", "stall", "crash"]


@dataclass(frozen=True, slots=True)
class BlameLimits:
    """How many of each a name may have within the window, and the share of a Pool that may be out because of it."""

    loss: int
    stall: int
    crash: int
    cordon_share: float


@dataclass(frozen=True, slots=True)
class Blamed:
    """Past its limit: of which kind, how many, and how many there may be."""

    trouble: Trouble
    count: int
    limit: int


def judge_blame(members: Iterable[str], limits: BlameLimits) -> Blamed | None:
    """The first kind of trouble of which there is too much. A member is `kind what`."""
    counts: Mapping[str, int] = Counter(member.partition(" ")[0] for member in members)
    allowed: dict[Trouble, int] = {"loss": limits.loss, "crash": limits.crash, "stall": limits.stall}
    for trouble, limit in allowed.items():
        if counts.get(trouble, 0) > limit:
            return Blamed(trouble, counts[trouble], limit)
    return None


def may_cordon(barred: Mapping[str, str], worker: str, share: float) -> bool:
    """Whether the Pool can do without this Worker. `barred` says of each of its Workers why it takes nothing new."""
    others = [reason for each, reason in barred.items() if each != worker]
    out = sum(1 for reason in others if reason)
    return out < len(others) and out + 1 <= max(1, int(len(barred) * share))
