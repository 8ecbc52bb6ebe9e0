"""Lives that need a new generation or wait for a free slot, as the store has them: for people, nothing is decided by
it.

The fields are read one after the other; a live that is placed meanwhile may still be listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dhsched.ownership.needs import needs_anew
from dhsched.store.raw import is_stalled
from dhsched.store.record import read_texts, stored_fields
from dhsched.store.records.fleet import WorkerState
from dhsched.store.records.lives import waiting_since_ms
from dhsched.store.records.part import Part
from dhsched.types import slot_tag

FIELDS = ("epoch", "selected", "state", "priority", "digital_id", "waits", "tries", "stalled", "acked", "note")


@dataclass(frozen=True, slots=True)
class Line:
    """A position in the queue of one Pool: 1 is next."""

    pool: str
    place: int
    of: int


@dataclass(frozen=True, slots=True)
class Recovering:
    """One live that needs a new generation or waits. `since_ms` is 0 if its beginning is not recorded."""

    live: str
    digital_id: str
    priority: int
    worker: str
    epoch: int
    need: str
    since_ms: int
    tries: int
    next_look_ms: int
    waiting_since_ms: int
    lines: tuple[Line, ...]


class RecoveringRecords(Part):
    """The lives of a cell that need a new generation or wait."""

    async def among(self, lives: Sequence[str], *, workers: Mapping[str, WorkerState], floor: int) -> list[Recovering]:
        """Return the lives among these that need or wait, in the order given. `workers` must be all of the store's."""
        stored = stored_fields(FIELDS)
        replies = await asyncio.gather(*(self._call("HMGET", "live", live, *stored) for live in lives))
        found = []
        for live, reply in zip(lives, replies, strict=True):
            f = read_texts(FIELDS, reply)
            if f["epoch"] and f["state"] != "ended" and _suspicious(f, workers, floor):
                found.append((live, f))
        made = await asyncio.gather(*(self._one(live, f, workers, floor) for live, f in found))
        return [each for each in made if each is not None]

    async def _one(
        self, live: str, f: Mapping[str, str], workers: Mapping[str, WorkerState], floor: int
    ) -> Recovering | None:
        epoch, pools, worker = int(f["epoch"]), f["waits"].split(), workers.get(f["selected"])
        slot, next_look, lost_at, *scores = await asyncio.gather(
            self._call("HGET", "slots", f["selected"], slot_tag(live, epoch)),
            self._call("ZSCORE", "agenda", f["priority"] or 0, live),
            self._call("HGET", "worker", f["selected"], "lost_at"),
            *(self._call("ZSCORE", "waiting", pool, live) for pool in pools),
        )
        ranks = await asyncio.gather(
            *(self._call("ZRANK", "waiting", pool, live) for pool in pools),
            *(self._call("ZCARD", "waiting", pool) for pool in pools),
        )
        need = needs_anew(
            below_floor=epoch <= floor,
            gone=worker is None or worker.gone,
            lost=worker is not None and worker.lost,
            vacant=slot == b"vacant",
            stalled=is_stalled(f["epoch"], f["acked"], f["stalled"]),
        )
        waiting = [waiting_since_ms(float(score)) for score in scores if score is not None]
        if not need and not waiting:
            return None
        noted = f["note"].split()
        since_ms = {"lost": int(lost_at or 0), "stalled": int(noted[2]) if len(noted) == 3 else 0}
        return Recovering(
            live=live,
            digital_id=f["digital_id"],
            priority=int(f["priority"] or 0),
            worker=f["selected"],
            epoch=epoch,
            need=need or "well again",
            since_ms=since_ms.get(need or "", 0),
            tries=int(f["tries"] or 0),
            next_look_ms=int(float(next_look or 0)),
            waiting_since_ms=min(waiting, default=0),
            lines=tuple(
                Line(pool, int(rank) + 1, int(of))
                for pool, rank, of in zip(pools, ranks[: len(pools)], ranks[len(pools) :], strict=True)
                if rank is not None
            ),
        )


def _suspicious(f: Mapping[str, str], workers: Mapping[str, WorkerState], floor: int) -> bool:
    """Return whether the live needs more reads. A slot that became vacant shows after the live's next look."""
    worker = workers.get(f["selected"])
    out = worker is None or worker.gone or worker.lost
    return bool(out or f["waits"] or f["tries"] or f["stalled"] or int(f["epoch"]) <= floor)
