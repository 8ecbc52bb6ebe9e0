"""Gather rows of many lives into few calls to the store. Appends, acks and releases are all sent in this way.

Theory of operation. Rows that are added in one tick of the loop go to the store in one call. At most `calls_max` calls
of one Gather are under way, so under load calls grow instead of queueing. No task, no timer and no call belongs to one
live.

    add ──> waiting ──flush──> under way ──┬── outcomes ────────> `answered`, with the outcome of each row
                                           ├── ended half-way ──> under way again, each row in a call of its own
                                           └── failed ──────────> `retry`, for each row, after RETRY_S; without `retry`
                                                                  the error is what each row is answered

A call ends half-way when one live's keys are damaged: the rows before that live have run, the rows behind it have not.
Damage to one live must not affect others, so each row is then sent alone. A row may therefore run twice, as after a
lost answer: every step that is called here recognizes a repetition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from typing import Any, Generic, TypeVar

import structlog

from dhsched.errors import StoreError, StoreRefused

log = structlog.get_logger(__name__)

ROWS_MAX = 128  # Rows in one call; the next row begins another call.
BYTES_FULL = 256 * 1024  # A call whose rows have this many bytes gets no more rows.
CALLS_MAX = 2  # Calls of one Gather under way; rows wait for one of them to come back.
RETRY_S = 0.1  # Between a call that failed and the retry of its rows.

Row = TypeVar("Row")
Request = TypeVar("Request")


class Gather(Generic[Row, Request]):
    """The calls of one kind. When a row is sent, `request` makes the store's argument from it."""

    def __init__(
        self,
        name: str,
        *,
        flush_soon: Callable[[], None],
        request: Callable[[Row], Request],
        call: Callable[[list[Request]], asyncio.Future[Any]],
        answered: Callable[[list[Row], list[Request], Iterable[Any]], None],
        retry: Callable[[Row, Request], None] | None = None,
        calls_max: float = CALLS_MAX,
        size_of: Callable[[Row], int] | None = None,
    ) -> None:
        self._name = name
        self._flush_soon = flush_soon
        self._request = request
        self._call = call
        self._answered = answered
        self._retry = retry
        self._calls_max = calls_max
        self._size_of = size_of
        self.waiting: list[Row] = []
        self.add = self.waiting.append
        """Add a row. The caller must flush soon: this runs for every item, and does nothing else."""
        self._calls = 0
        self._loop = asyncio.get_running_loop()

    @property
    def idle(self) -> bool:
        """Whether no row waits and no call is under way."""
        return not self.waiting and not self._calls

    def flush(self) -> None:
        """Send the waiting rows, as far as the limit of calls allows."""
        while self.waiting and self._calls < self._calls_max:
            rows = self._next_rows()
            self._send(rows, map(self._request, rows))

    def _next_rows(self) -> list[Row]:
        """Remove and return the rows of the next call, in their order."""
        rows = self.waiting[:ROWS_MAX]
        if self._size_of is not None:
            for count, size_bytes in enumerate(accumulate(map(self._size_of, rows)), 1):
                if size_bytes >= BYTES_FULL:
                    del rows[count:]
                    break
        del self.waiting[: len(rows)]
        return rows

    def _send(self, rows: list[Row], made: Iterable[Request]) -> None:
        self._calls += 1
        requests = [*made]
        answer = self._call(requests)
        answer.add_done_callback(lambda done: self._returned(rows, requests, done))

    def _returned(self, rows: list[Row], requests: list[Request], answer: asyncio.Future[Any]) -> None:
        self._calls -= 1
        outcomes = self._read(answer)
        if len(rows) > 1 and ended_half_way(outcomes):
            for row, request in zip(rows, requests, strict=True):
                self._send([row], [request])
            return
        if not isinstance(outcomes, StoreError):
            self._answered(rows, requests, outcomes)
        elif self._retry is None:
            self._answered(rows, requests, repeat(outcomes, len(rows)))
        else:
            log.warning(f"cannot {self._name}", lives=len(rows), reason=str(outcomes))
            self._loop.call_later(RETRY_S, self._retry_all, rows, requests)
        if self.waiting:
            # Rows that waited for this call to come back: nobody else may be about to flush.
            self._flush_soon()

    def _read(self, answer: asyncio.Future[Any]) -> Sequence[Any] | StoreError:
        """Return a call's outcomes, or its error."""
        try:
            outcomes: Sequence[Any] = answer.result()
            return outcomes
        except StoreError as error:
            return error

    def _retry_all(self, rows: list[Row], requests: list[Request]) -> None:
        assert self._retry is not None
        for row, request in zip(rows, requests, strict=True):
            self._retry(row, request)


def ended_half_way(outcomes: Sequence[Any] | StoreError) -> bool:
    """Return whether a call ended at one of its rows; a full store, for example, refuses before the first row."""
    return isinstance(outcomes, StoreRefused) and outcomes.code in ("ERR", "WRONGTYPE")
