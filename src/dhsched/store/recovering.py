"""Lives that need a new generation or wait for room, as the store has them: for people, nothing is decided by it.

It says the same as `needs` does in the steps, from fields that are read one after the other; a live that is placed
meanwhile may show once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dhsched.ownership.draft import WAITING_CLASS
from dhsched.store.reads import Reads, WorkerState

FIELDS = (
    *("epoch", "selected", "state", "priority", "digital_id", "waits", "tries", "stalled"),
    *("pull_no", "released", "acked", "note"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A place in the line of one Pool: 1 is next."""

    pool: str
    place: int
    of: int


@dataclass(frozen=True, slots=True)
class Recovering:
    """One such live. `since_ms` is 0 where nobody wrote down when it began."""

    live: str
    digital_id: str
    priority: int
    worker: str
    epoch: int
    why: str
    since_ms: int
    tries: int
    next_look_ms: int
    waiting_since_ms: int
    lines: tuple[Line, ...]


def waiting_since_ms(score: float) -> int:
    """When a live joined a line, by the store's clock: the score is its class and that."""
    return int(score) % WAITING_CLASS


async def recovering(
    reads: Reads, lives: Sequence[str], *, workers: Mapping[str, WorkerState], floor: int
) -> list[Recovering]:
    """Those of these lives that need or wait, in the order given. `workers` are all that the store knows."""
    calls = [reads.link.call("HMGET", reads.keys.of("live", live), *FIELDS) for live in lives]
    found = []
    for live, reply in zip(lives, await asyncio.gather(*calls), strict=True):
        f = dict(zip(FIELDS, ((each or b"").decode() for each in reply), strict=True))
        if f["epoch"] and f["state"] != "ended" and _suspicious(f, workers, floor):
            found.append((live, f))
    made = await asyncio.gather(*(_one(reads, live, f, workers, floor) for live, f in found))
    return [each for each in made if each is not None]


def _suspicious(f: Mapping[str, str], workers: Mapping[str, WorkerState], floor: int) -> bool:
    """Worth a closer look. A slot that has just become vacant shows once somebody has looked at the live."""
    worker = workers.get(f["selected"])
    out = worker is None or worker.gone or worker.lost
    return bool(out or f["waits"] or f["tries"] or f["stalled"] or int(f["epoch"]) <= floor)


async def _one(
    reads: Reads, live: str, f: Mapping[str, str], workers: Mapping[str, WorkerState], floor: int
) -> Recovering | None:
    keys, call, pools = reads.keys, reads.link.call, f["waits"].split()
    slot, next_look, lost_at, *scores = await asyncio.gather(
        call("HGET", keys.of("slots", f["selected"]), f"{live}@{f['epoch']}"),
        call("ZSCORE", keys.of("agenda", f["priority"] or "0"), live),
        call("HGET", keys.of("worker", f["selected"]), "lost_at"),
        *(call("ZSCORE", keys.of("waiting", pool), live) for pool in pools),
    )
    ranks = await asyncio.gather(
        *(call("ZRANK", keys.of("waiting", pool), live) for pool in pools),
        *(call("ZCARD", keys.of("waiting", pool)) for pool in pools),
    )
    why, since_ms = _why(f, workers.get(f["selected"]), floor, slot, int(lost_at or 0))
    waiting = [waiting_since_ms(float(score)) for score in scores if score is not None]
    if not why and not waiting:
        return None
    return Recovering(
        live=live,
        digital_id=f["digital_id"],
        priority=int(f["priority"] or 0),
        worker=f["selected"],
        epoch=int(f["epoch"]),
        why=why or "well again",
        since_ms=since_ms,
        tries=int(f["tries"] or 0),
        next_look_ms=int(float(next_look or 0)),
        waiting_since_ms=min(waiting, default=0),
        lines=tuple(
            Line(pool, int(rank) + 1, int(of))
            for pool, rank, of in zip(pools, ranks[: len(pools)], ranks[len(pools) :], strict=True)
            if rank is not None
        ),
    )


def _why(
    f: Mapping[str, str], worker: WorkerState | None, floor: int, slot: bytes | None, lost_at_ms: int
) -> tuple[str, int]:
    """Why it must be placed anew, as `needs` has it, and since when."""
    if int(f["epoch"]) <= floor:
        return "floor", 0
    if worker is None or worker.gone:
        return "gone", 0
    if worker.lost:
        return "lost", lost_at_ms
    if slot == b"vacant":
        return "vacant", 0
    if f["stalled"] and f["stalled"] == " ".join(f[name] or "0" for name in ("epoch", "pull_no", "released", "acked")):
        noted = f["note"].split()
        return "stalled", int(noted[4]) if len(noted) == 5 else 0
    return "", 0
