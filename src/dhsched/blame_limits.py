"""Blame: decide (purely) when a Worker has had so many troubles that it gets no new lives.

Troubles are counted by the Worker's *name*, because a machine that loses its Worker again and again comes back with a
new boot each time. Three kinds are counted within a window; older troubles are forgotten:

- *loss*: the Worker was called lost, each time once;
- *stall*: a live on the Worker made no progress over two looks;
- *crash*: a live's runtime on the Worker ended by itself.

Stalls and crashes are counted by *live*: one live that crashes all day says more about the live than about the Worker.
A fault that hits all Workers (a bad release, a bad input) must not cordon them all: only a share of a Pool may be out.

A Worker that has several devices counts crashes for each of them, too, by the same rule (`judge_device`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Trouble = Literal["loss", "stall", "crash"]


@dataclass(frozen=True, slots=True)
class BlameLimits:
    """The troubles of each kind that a name may have within the window, and the share of a Pool that may be out."""

    loss: int
    stall: int
    crash: int
    cordon_share: float


@dataclass(frozen=True, slots=True)
class Blamed:
    """A Worker past a limit: the kind of trouble, the count, and the limit."""

    trouble: Trouble
    count: int
    limit: int


def judge_blame(members: Iterable[str], limits: BlameLimits) -> Blamed | None:
    """Return the first kind of trouble that is past its limit, or None. A member is the text `kind what`."""
    for trouble, count, limit in count_troubles(members, limits):
        if count > limit:
            return Blamed(trouble, count, limit)
    return None


def count_troubles(members: Iterable[str], limits: BlameLimits) -> list[tuple[Trouble, int, int]]:
    """Return for each kind of trouble how many there are, and how many there may be."""
    counts: Mapping[str, int] = Counter(member.partition(" ")[0] for member in members)
    allowed: dict[Trouble, int] = {"loss": limits.loss, "crash": limits.crash, "stall": limits.stall}
    return [(trouble, counts.get(trouble, 0), limit) for trouble, limit in allowed.items()]


def judge_device(lives: Iterable[str], crashes_max: int) -> Blamed | None:
    """Return that a device is past its limit, or None. `lives` are those whose runtime has ended on it."""
    limits = BlameLimits(loss=0, stall=0, crash=crashes_max, cordon_share=0.0)
    return judge_blame((f"crash {live}" for live in lives), limits)


def may_cordon(barred: Mapping[str, str], worker: str, share: float) -> bool:
    """Return whether the Pool can do without this Worker. `barred` has, for each Worker of the Pool, why it takes no
    new lives, or an empty text."""
    others = [reason for each, reason in barred.items() if each != worker]
    out = sum(1 for reason in others if reason)
    return out < len(others) and out + 1 <= max(1, int(len(barred) * share))
