"""The interface of the store: the eighteen steps as calls, on a server or in memory.

`RedisStore` asks a real server, `MemoryStore` the model itself. Both check their arguments here, at the one boundary,
and return the same outcomes. A call either returns an outcome or raises `StoreError`; if the error says `unknown`,
repeat the call with the same operation id.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dhsched.errors import BadValue
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import UNMARKED, Through
from dhsched.ownership.journal import Change, check_change
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.ownership.steps.set_worker import Verb
from dhsched.types import (
    BUSY_MAX,
    LIFETIME_MAX_S,
    NUMBER_MAX,
    PRIORITIES,
    REASON_BYTES_MAX,
    Candidates,
    Cause,
    Kind,
    check_ack,
    check_bytes,
    check_candidates,
    check_emit,
    check_id,
    check_live,
    check_mark,
    check_number,
    check_text,
    check_word,
    check_worker,
    clean_reason,
    if_given,
)

# Beyond these an argument is refused with BadValue.
CAPACITY_MAX = 100_000
TEXT_BYTES_MAX = 65_536
LABELS_BYTES_MAX = 1_024


CHECKS: Mapping[str, Callable[[Any], object]] = {
    "live": check_live,
    "worker": check_worker,
    "replaces": if_given(check_worker),
    "mark": check_mark,
    **{name: partial(check_id, what=name) for name in ("boot", "pool", "operation", "controller")},
    **{name: if_given(partial(check_id, what=name)) for name in ("server", "home", "link", "producer", "request")},
    **{
        name: partial(check_number, what=name)
        for name in (
            *("jump", "term", "rev", "beat", "number", "epoch", "pull_no", "after", "told", "lives_max"),
            *("starts_create", "starts_recover", "cutovers"),
        )
    },
    "expected": partial(check_number, what="expected epoch"),
    "capacity": partial(check_number, what="capacity", low=1, high=CAPACITY_MAX),
    "credit": partial(check_number, what="credit", high=1_000),
    "labels": partial(check_text, what="labels"),
    "payload": partial(check_bytes, what="payload", most=TEXT_BYTES_MAX),
    "verb": partial(check_word, what="verb", allowed=("cordon", "uncordon", "drain", "undrain", "exit", "reap")),
    "cause": partial(check_word, what="cause", allowed=("create", "reassign", "recover", "drain", "rebalance")),
    "kind": partial(check_word, what="kind", allowed=("text", "interrupt", "config")),
}
"""The check of each argument that is the same in every step."""


def check(**arguments: Any) -> None:
    """Raise BadId or BadValue for the first argument that is not what its name says."""
    for name, value in arguments.items():
        if name in CHECKS:
            CHECKS[name](value)


class Store(ABC):
    """The steps of one cell."""

    limits: Limits

    @abstractmethod
    def step(self, step: str, /, **arguments: Any) -> Awaitable[Any]:
        """Run one step of the model, with its checked arguments."""

    @abstractmethod
    async def close(self) -> None:
        """Close what the store has opened."""

    def _take(self, step: str, /, **arguments: Any) -> Awaitable[Any]:
        check(**arguments)
        return self.step(step, **arguments)

    # -- homes

    def enter(self, *, server: str = "", jump: int, first: bool = False) -> Awaitable[o.EnterOutcome]:
        """Begin the home of `server`, unless it is the home. A server knows its own name, and does not ask for it."""
        return self._take("enter", server=server, jump=jump, first=first)

    # -- Workers

    def register_worker(
        self, *, name: str, boot: str, pool: str, capacity: int, labels: str = "", replaces: str = ""
    ) -> Awaitable[o.RegisterOutcome]:
        check_id(name, "worker name")
        return self._take(
            "register_worker", name=name, boot=boot, pool=pool, capacity=capacity, labels=labels, replaces=replaces
        )

    def report(
        self,
        *,
        worker: str,
        boot: str,
        home: str = "",
        term: int = 0,
        rev: int = 0,
        link: str = "",
        busy: Sequence[str] = (),
        partly: bool = False,
        starts_create: int = 0,
        starts_recover: int = 0,
        cutovers: int = 0,
    ) -> Awaitable[o.ReportOutcome]:
        check(worker=worker)
        if len(busy) > BUSY_MAX:
            raise BadValue(f"a report of {worker} names {len(busy)} busy slots; send at most {BUSY_MAX} at once")
        for tag in busy:
            live, _, number = tag.rpartition("@")
            check_live(live), check_number(int(number) if re.fullmatch(r"[0-9]{1,16}", number) else -1, "slot number")
        return self._take(
            "report",
            worker=worker,
            boot=boot,
            home=home,
            term=term,
            rev=rev,
            link=link,
            busy=busy,
            partly=partly,
            starts_create=starts_create,
            starts_recover=starts_recover,
            cutovers=cutovers,
        )

    def set_worker(self, *, worker: str, verb: Verb) -> Awaitable[o.SetOutcome]:
        return self._take("set_worker", worker=worker, verb=verb)

    def expire_worker(self, *, worker: str, beat: int) -> Awaitable[o.ExpireOutcome]:
        return self._take("expire_worker", worker=worker, beat=beat)

    def depart(self, *, worker: str, live: str, number: int, reason: str = "") -> Awaitable[o.DepartOutcome]:
        if not isinstance(reason, str) or reason != clean_reason(reason):
            raise BadValue(f"the reason must be one line of at most {REASON_BYTES_MAX} bytes of printable text")
        return self._take("depart", worker=worker, live=live, number=number, reason=reason)

    # -- generations

    def place(
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
        lives_max: int = 0,
    ) -> Awaitable[o.PlaceOutcome]:
        check(live=live, cause=cause, operation=operation, expected=expected, lives_max=lives_max)
        check_candidates(candidates, pools, self.limits.candidates_max)
        if (create is not None) != (cause == "create"):
            raise BadValue(f"place of {live} with cause {cause!r}: `create` is given with cause create, and only then")
        if create is not None:
            check_id(create.digital_id, "digital_id")
            check_id(create.fingerprint, "fingerprint")
            if create.room:
                check_id(create.room, "room")
            check_bytes(create.metadata, "metadata", TEXT_BYTES_MAX)
            check_bytes(create.config, "config", TEXT_BYTES_MAX)
            check_bytes(create.labels, "labels", LABELS_BYTES_MAX)
            check_number(create.priority, "priority", 0, PRIORITIES - 1)
            for lifetime, name in ((create.idle_ms, "idle_ms"), (create.max_ms, "max_ms")):
                check_number(lifetime, name, 0, int(LIFETIME_MAX_S * 1_000))
        return self.step(
            "place",
            live=live,
            operation=operation,
            cause=cause,
            expected=expected,
            create=create,
            candidates=candidates,
            pools=pools,
            at_boundary=at_boundary,
            lives_max=lives_max,
        )

    def reserve(self, *, live: str, expected: int, candidates: Candidates) -> Awaitable[o.ReserveOutcome]:
        check_candidates(candidates, (), self.limits.candidates_max)
        return self._take("reserve", live=live, expected=expected, candidates=candidates)

    def hold(self, *, live: str, number: int) -> Awaitable[o.HoldOutcome]:
        return self._take("hold", live=live, number=number)

    def cancel(self, *, live: str, number: int) -> Awaitable[o.CancelOutcome]:
        return self._take("cancel", live=live, number=number)

    # -- input

    def pull(
        self,
        *,
        live: str,
        worker: str,
        epoch: int,
        after: int,
        controller: str,
        mark: bytes = UNMARKED,
        journal: bool = False,
    ) -> Awaitable[o.PullOutcome]:
        return self._take(
            "pull",
            live=live,
            worker=worker,
            epoch=epoch,
            after=after,
            controller=controller,
            mark=mark,
            journal=journal,
        )

    def append_input(
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
        through: Through | None = None,
        credit: int = 0,
    ) -> Awaitable[o.AppendOutcome]:
        check(live=live)
        if bool(producer) == bool(request):
            raise BadValue(f"input for {live} needs either a producer and its n, or a request id")
        if producer:
            check_number(n, "n", 1)
        if through is not None:
            check(**through._asdict())
        return self._take(
            "append_input",
            live=live,
            kind=kind,
            payload=payload,
            boundary=boundary,
            producer=producer,
            n=n,
            request=request,
            mark=mark,
            through=through,
            credit=credit,
        )

    def release_input(
        self, *, live: str, worker: str, epoch: int, pull_no: int, after: int, credit: int, mark: bytes = UNMARKED
    ) -> Awaitable[o.ReleaseOutcome]:
        return self._take(
            "release_input",
            live=live,
            worker=worker,
            epoch=epoch,
            pull_no=pull_no,
            after=after,
            credit=credit,
            mark=mark,
        )

    def ack_input(
        self,
        *,
        live: str,
        worker: str,
        epoch: int,
        n: int,
        saved: bytes | None = None,
        journal: Change | None = None,
        mark: bytes = UNMARKED,
    ) -> Awaitable[o.AckOutcome]:
        check_number(n, "n")
        check_ack(mark, saved, self.limits.state_bytes_max)
        if journal is not None:
            check_change(journal, self.limits)
        return self._take(
            "ack_input", live=live, worker=worker, epoch=epoch, n=n, saved=saved, journal=journal, mark=mark
        )

    def emit(
        self, *, live: str, worker: str, epoch: int, n: int, name: str, data: bytes, told: int = 0
    ) -> Awaitable[o.EmitOutcome]:
        check_number(n, "n", 1)
        check_emit(name, data)
        return self._take("emit", live=live, worker=worker, epoch=epoch, n=n, name=name, data=data, told=told)

    def end_live(self, *, live: str, after_pending: bool = False) -> Awaitable[o.EndOutcome]:
        return self._take("end_live", live=live, after_pending=after_pending)

    # -- time

    def look(self, *, live: str) -> Awaitable[o.LookOutcome]:
        return self._take("look", live=live)

    def new_term(self, *, term: int) -> Awaitable[o.NewTermOutcome]:
        # The numbers of the term that begins must all fit: the floor follows from the term.
        check_number(term, "term", 1, NUMBER_MAX // self.limits.term_step - 3)
        return self.step("new_term", term=term)
