"""The authority: the sixteen steps as calls, whatever answers them.

`RedisStore` asks a real server, `MemoryStore` the model itself. Both check what they are given here, at the one
boundary, and answer with the same values. A call either answers, or raises `StoreError`; after one that says
`unknown`, repeat the call with the same operation id.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from dhsched.errors import BadValue
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import UNMARKED
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.ownership.steps.set_worker import Verb
from dhsched.types import (
    BUSY_MAX,
    MARK_BYTES,
    NUMBER_MAX,
    PRIORITIES,
    REASON_BYTES_MAX,
    Candidates,
    Cause,
    Equals,
    Kind,
    check_id,
    check_live,
    check_worker,
    clean_reason,
)

CAPACITY_MAX = 100_000
TEXT_BYTES_MAX = 65_536
TERMS_LOST_MAX = 1_000
"""Terms that a store may have forgotten at once."""


class Store(ABC):
    """One cell's steps."""

    limits: Limits
    now_ms: int = 0
    """The store's time at the latest answer."""

    @abstractmethod
    async def step(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Run one step with arguments that have been checked."""

    @abstractmethod
    async def close(self) -> None: ...

    # -- Workers

    async def register_worker(
        self, *, name: str, boot: str, pool: str, capacity: int, labels: str = "", replaces: str = ""
    ) -> o.RegisterOutcome:
        check_id(name, "worker name"), check_id(boot, "boot"), check_id(pool, "pool")
        check_number(capacity, "capacity", 1, CAPACITY_MAX)
        check_text(labels, "labels")
        if replaces:
            check_worker(replaces)
        return cast(o.RegisterOutcome, await self._step("register_worker", locals()))

    async def report(
        self, *, worker: str, boot: str, term: int = 0, rev: int = 0, link: str = "", busy: Sequence[str] = ()
    ) -> o.ReportOutcome:
        check_worker(worker), check_id(boot, "boot")
        check_number(term, "term"), check_number(rev, "rev")
        if link:
            check_id(link, "link")
        if len(busy) > BUSY_MAX:
            raise BadValue(f"a report of {worker} names {len(busy)} busy slots, at most {BUSY_MAX} are taken at once")
        for tag in busy:
            live, _, number = tag.rpartition("@")
            check_live(live), check_number(int(number) if re.fullmatch(r"[0-9]{1,16}", number) else -1, "slot number")
        return cast(o.ReportOutcome, await self._step("report", locals()))

    async def set_worker(self, *, worker: str, verb: Verb) -> o.SetOutcome:
        check_worker(worker)
        check_word(verb, "verb", ("cordon", "uncordon", "drain", "undrain", "exit", "reap"))
        return cast(o.SetOutcome, await self._step("set_worker", locals()))

    async def expire_worker(self, *, worker: str, beat: int) -> o.ExpireOutcome:
        check_worker(worker), check_number(beat, "beat")
        return cast(o.ExpireOutcome, await self._step("expire_worker", locals()))

    async def depart(self, *, worker: str, live: str, number: int, reason: str = "") -> o.DepartOutcome:
        check_worker(worker), check_live(live), check_number(number, "number")
        if not isinstance(reason, str) or reason != clean_reason(reason):
            raise BadValue(f"the reason must be one line of at most {REASON_BYTES_MAX} bytes of printable text")
        return cast(o.DepartOutcome, await self._step("depart", locals()))

    # -- generations

    async def place(
        self,
        *,
        live: str,
        operation: str,
        cause: Cause,
        expected: int = 0,
        create: Create | None = None,
        candidates: Candidates = (),
        pools: Sequence[str] = (),
        at_boundary: bool = False,
    ) -> o.PlaceOutcome:
        check_live(live), check_id(operation, "operation"), check_number(expected, "expected epoch")
        check_word(cause, "cause", ("create", "reassign", "recover", "drain", "rebalance"))
        if (create is not None) != (cause == "create"):
            raise BadValue(
                f"place of {live} because {cause!r}: what the live is made of goes with create, and only there"
            )
        if create is not None:
            check_create(create)
        self._check_candidates(candidates, pools)
        return cast(o.PlaceOutcome, await self._step("place", locals()))

    async def reserve(self, *, live: str, expected: int, candidates: Candidates) -> o.ReserveOutcome:
        check_live(live), check_number(expected, "expected epoch")
        self._check_candidates(candidates, ())
        return cast(o.ReserveOutcome, await self._step("reserve", locals()))

    async def hold(self, *, live: str, number: int) -> o.HoldOutcome:
        check_live(live), check_number(number, "number")
        return cast(o.HoldOutcome, await self._step("hold", locals()))

    async def cancel(self, *, live: str, number: int) -> o.CancelOutcome:
        check_live(live), check_number(number, "number")
        return cast(o.CancelOutcome, await self._step("cancel", locals()))

    # -- input

    async def pull(
        self, *, live: str, worker: str, epoch: int, after: int, controller: str, mark: bytes = UNMARKED
    ) -> o.PullOutcome:
        check_live(live), check_worker(worker), check_number(epoch, "epoch"), check_number(after, "after")
        check_id(controller, "controller")
        check_mark(mark)
        return cast(o.PullOutcome, await self._step("pull", locals()))

    async def append_input(
        self,
        *,
        live: str,
        kind: Kind,
        payload: bytes,
        boundary: bool = False,
        producer: str = "",
        n: int = 0,
        request: str = "",
        mark: bytes = UNMARKED,
    ) -> o.AppendOutcome:
        check_live(live)
        check_mark(mark)
        check_word(kind, "kind", ("text", "interrupt", "config"))
        check_bytes(payload, "payload", TEXT_BYTES_MAX)
        if bool(producer) == bool(request):
            raise BadValue(f"input for {live} needs either a producer and its n, or a request id")
        if producer:
            check_id(producer, "producer"), check_number(n, "n", 1)
        else:
            check_id(request, "request")
        return cast(o.AppendOutcome, await self._step("append_input", locals()))

    async def release_input(
        self, *, live: str, worker: str, epoch: int, pull_no: int, after: int, credit: int, mark: bytes = UNMARKED
    ) -> o.ReleaseOutcome:
        check_live(live), check_worker(worker), check_number(epoch, "epoch"), check_number(pull_no, "pull_no")
        check_number(after, "after"), check_number(credit, "credit", 0, 1_000)
        check_mark(mark)
        return cast(o.ReleaseOutcome, await self._step("release_input", locals()))

    async def ack_input(
        self, *, live: str, worker: str, epoch: int, n: int, saved: bytes | None = None, mark: bytes = UNMARKED
    ) -> o.AckOutcome:
        check_live(live), check_worker(worker), check_number(epoch, "epoch"), check_number(n, "n")
        self.check_ack(mark, saved)
        return cast(o.AckOutcome, await self._step("ack_input", locals()))

    def check_ack(self, mark: bytes, saved: bytes | None) -> None:
        """What an ack brings along beside its numbers. The shared call takes rows that were checked by this, too."""
        check_mark(mark)
        if saved is not None:
            check_bytes(saved, "saved state", self.limits.state_bytes_max)

    async def end_live(self, *, live: str, after_pending: bool = False) -> o.EndOutcome:
        check_live(live)
        return cast(o.EndOutcome, await self._step("end_live", locals()))

    # -- time

    async def look(self, *, live: str) -> o.LookOutcome:
        check_live(live)
        return cast(o.LookOutcome, await self._step("look", locals()))

    async def new_term(self, *, term: int, seen_term: int) -> o.NewTermOutcome:
        # Whoever says that it has seen a later term is believed only so far: the floor follows from the term.
        # And the numbers of the term that begins must all fit.
        last = NUMBER_MAX // self.limits.term_step - 2
        check_number(term, "term", 1, last - 1)
        check_number(seen_term, "seen term", 0, min(term + TERMS_LOST_MAX, last - 1))
        return cast(o.NewTermOutcome, await self._step("new_term", locals()))

    async def _step(self, name: str, arguments: dict[str, Any]) -> Any:
        return await self.step(name, {key: arguments[key] for key in STEP_ARGUMENTS[name]})

    def _check_candidates(self, candidates: Candidates, pools: Sequence[str]) -> None:
        named: list[str] = []
        for candidate in candidates:
            if isinstance(candidate, Equals):
                check_id(candidate.pool, "pool")
                if not candidate.workers:
                    raise BadValue(f"candidates of Pool {candidate.pool} that stand equal: none is named")
                named += candidate.workers
            else:
                named.append(candidate)
        for what, given in (("candidates", named), ("Pools", pools)):
            if len(given) > self.limits.candidates_max:
                raise BadValue(f"{len(given)} {what} were named, at most {self.limits.candidates_max} are allowed")
        for worker in named:
            check_worker(worker)
        for pool in pools:
            check_id(pool, "pool")


def check_number(value: object, what: str, low: int = 0, high: int = NUMBER_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadValue(f"{what} is {value!r}; it must be a whole number from {low} to {high}")
    return value


def check_word(value: object, what: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise BadValue(f"{what} is {value!r}; it must be one of {', '.join(allowed)}")


def check_bytes(value: object, what: str, most: int) -> None:
    if not isinstance(value, bytes):
        raise BadValue(f"{what} must be bytes, not {type(value).__name__}")
    if len(value) > most:
        raise BadValue(f"{what} has {len(value)} bytes, at most {most} are allowed")


def check_mark(value: object) -> None:
    """A mark, or none, as whoever has no item yet has none."""
    if not isinstance(value, bytes) or len(value) not in (0, MARK_BYTES):
        raise BadValue(f"an item's mark must be {MARK_BYTES} bytes, or none, not {value!r:.40}")


def check_text(value: object, what: str) -> None:
    if not isinstance(value, str) or len(value) > 1_024 or any(ord(c) < 32 for c in value):
        raise BadValue(f"{what} must be text of at most 1024 characters without control characters")


def check_create(create: Create) -> None:
    check_id(create.digital_id, "digital_id"), check_id(create.fingerprint, "fingerprint")
    if create.room:
        check_id(create.room, "room")
    check_bytes(create.metadata, "metadata", TEXT_BYTES_MAX)
    check_bytes(create.config, "config", TEXT_BYTES_MAX)
    check_number(create.priority, "priority", 0, PRIORITIES - 1)


def _arguments(method: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(method).parameters) - {"self"}


STEP_ARGUMENTS = {name: _arguments(getattr(Store, name)) for name in STEPS}
"""What each call takes: exactly what the step of the model takes, which a test compares."""
