"""Reports of this replica to the store, every few seconds, for `GET /v1/replicas` and `GET /v1/summary`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nlargest

import dhsched
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.silences import Silences
from dhsched.store.records.replicas import LAG_MS, LAGS_MAX, MISSING_MAX, ReplicaReport


class ReplicaReports:
    """The reports of one Dispatch replica. `missing` returns why the replica is not ready, `lags` how late the event
    loops of its Workers were, in ms."""

    def __init__(
        self,
        context: DispatchContext,
        silences: Silences,
        missing: Callable[[], Awaitable[Sequence[str]]],
        lags: Callable[[], Mapping[str, int]],
    ) -> None:
        self._context = context
        self._silences = silences
        self._missing = missing
        self._lags = lags
        self._began = context.loop_time()

    async def round(self) -> None:
        """Report once, if the store can be reached."""
        context, now = self._context, self._context.loop_time()
        missing = ["it is stopping"] if context.service.stopping else await self._missing()
        await context.store.records.replicas.report(
            ReplicaReport(
                role="dispatch",
                name=context.replica,
                version=dhsched.__version__,
                up_s=int(now - self._began),
                missing=tuple(missing[:MISSING_MAX]),
                creates_waiting=len(context.create_queue),
                silent=len(self._silences.overdue),
                safety=context.safety.counts(now),
                lags=worst(self._lags()),
            )
        )


def worst(lags: Mapping[str, int]) -> dict[str, int]:
    """Return the largest lags by Worker, of those that are worth telling."""
    late = [(lag_ms, worker) for worker, lag_ms in lags.items() if lag_ms >= LAG_MS]
    return {worker: lag_ms for lag_ms, worker in nlargest(LAGS_MAX, late)}
