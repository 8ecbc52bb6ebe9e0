"""The interface of the store: the seventeen steps as calls, on a server or in memory.

`RedisStore` asks a real server, `MemoryStore` the model itself. Both check their arguments here, at the one boundary,
and return the same outcomes. A call either returns an outcome or raises `StoreError`; if the error says `unknown`,
repeat the call with the same operation id.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Any

from dhsched.errors import BadValue
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import UNMARKED, Through
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.ownership.steps.set_worker import Verb
from dhsched.types import (
    BUSY_MAX,
    NUMBER_MAX,
    PRIORITIES,
    REASON_BYTES_MAX,
    Candidates,
    Cause,
    Equals,
    Kind,
    check_ack,
    check_bytes,
    check_id,
    check_live,
    check_mark,
    check_number,
    check_text,
    check_word,
    check_worker,
    clean_reason,
)

CAPACITY_MAX = 100_000
TEXT_BYTES_MAX = 65_536


class Store(ABC):
    """The steps of one cell."""

    limits: Limits

    @abstractmethod
    def step(self, step: str, /, **arguments: Any) -> Awaitable[Any]:
        """Run one step of the model, with its checked arguments."""

    @abstractmethod
    async def close(self) -> None: ...

    # -- homes

    def enter(self, *, server: str = "", jump: int, first: bool = False) -> Awaitable[o.EnterOutcome]:
        """Begin the home of `server`, unless it is the home. A server knows its own name, and does not ask for it."""
        if server:
            check_id(server, "server")
        check_number(jump, "jump")
        return self.step("enter", server=server, jump=jump, first=first)

    # -- Workers

    def register_worker(
        self, *, name: str, boot: str, pool: str, capacity: int, labels: str = "", replaces: str = ""
    ) -> Awaitable[o.RegisterOutcome]:
        check_id(name, "worker name"), check_id(boot, "boot"), check_id(pool, "pool")
        check_number(capacity, "capacity", 1, CAPACITY_MAX)
        check_text(labels, "labels")
        if replaces:
            check_worker(replaces)
        return self.step(
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
    ) -> Awaitable[o.ReportOutcome]:
        check_worker(worker), check_id(boot, "boot")
        if home:
            check_id(home, "home")
        check_number(term, "term"), check_number(rev, "rev")
        if link:
            check_id(link, "link")
        if len(busy) > BUSY_MAX:
            raise BadValue(f"a report of {worker} names {len(busy)} busy slots; send at most {BUSY_MAX} at once")
        for tag in busy:
            live, _, number = tag.rpartition("@")
            check_live(live), check_number(int(number) if re.fullmatch(r"[0-9]{1,16}", number) else -1, "slot number")
        given = {"home": home, "term": term, "rev": rev, "link": link, "busy": busy, "partly": partly}
        return self.step("report", worker=worker, boot=boot, **given)

    def set_worker(self, *, worker: str, verb: Verb) -> Awaitable[o.SetOutcome]:
        check_worker(worker)
        check_word(verb, "verb", ("cordon", "uncordon", "drain", "undrain", "exit", "reap"))
        return self.step("set_worker", worker=worker, verb=verb)

    def expire_worker(self, *, worker: str, beat: int) -> Awaitable[o.ExpireOutcome]:
        check_worker(worker), check_number(beat, "beat")
        return self.step("expire_worker", worker=worker, beat=beat)

    def depart(self, *, worker: str, live: str, number: int, reason: str = "") -> Awaitable[o.DepartOutcome]:
        check_worker(worker), check_live(live), check_number(number, "number")
        if not isinstance(reason, str) or reason != clean_reason(reason):
            raise BadValue(f"the reason must be one line of at most {REASON_BYTES_MAX} bytes of printable text")
        return self.step("depart", worker=worker, live=live, number=number, reason=reason)

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
        self._check_candidates(candidates, pools)
        check_live(live), check_id(operation, "operation"), check_number(expected, "expected epoch")
        check_number(lives_max, "lives_max")
        check_word(cause, "cause", ("create", "reassign", "recover", "drain", "rebalance"))
        if (create is not None) != (cause == "create"):
            raise BadValue(f"place of {live} with cause {cause!r}: `create` is given with cause create, and only then")
        if create is not None:
            check_id(create.digital_id, "digital_id"), check_id(create.fingerprint, "fingerprint")
            if create.room:
                check_id(create.room, "room")
            check_bytes(create.metadata, "metadata", TEXT_BYTES_MAX)
            check_bytes(create.config, "config", TEXT_BYTES_MAX)
            check_number(create.priority, "priority", 0, PRIORITIES - 1)
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
        self._check_candidates(candidates, ())
        check_live(live), check_number(expected, "expected epoch")
        return self.step("reserve", live=live, expected=expected, candidates=candidates)

    def hold(self, *, live: str, number: int) -> Awaitable[o.HoldOutcome]:
        check_live(live), check_number(number, "number")
        return self.step("hold", live=live, number=number)

    def cancel(self, *, live: str, number: int) -> Awaitable[o.CancelOutcome]:
        check_live(live), check_number(number, "number")
        return self.step("cancel", live=live, number=number)

    # -- input

    def pull(
        self, *, live: str, worker: str, epoch: int, after: int, controller: str, mark: bytes = UNMARKED
    ) -> Awaitable[o.PullOutcome]:
        check_live(live), check_worker(worker), check_number(epoch, "epoch"), check_number(after, "after")
        check_id(controller, "controller")
        check_mark(mark)
        return self.step("pull", live=live, worker=worker, epoch=epoch, after=after, controller=controller, mark=mark)

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
        if through is not None:
            check_worker(through.worker), check_number(through.epoch, "epoch")
            check_number(through.pull_no, "pull_no"), check_number(through.after, "after")
            check_mark(through.mark)
        check_number(credit, "credit", 0, 1_000)
        return self.step(
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
        check_live(live), check_worker(worker), check_number(epoch, "epoch"), check_number(pull_no, "pull_no")
        check_number(after, "after"), check_number(credit, "credit", 0, 1_000)
        check_mark(mark)
        return self.step(
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
        self, *, live: str, worker: str, epoch: int, n: int, saved: bytes | None = None, mark: bytes = UNMARKED
    ) -> Awaitable[o.AckOutcome]:
        check_live(live), check_worker(worker), check_number(epoch, "epoch"), check_number(n, "n")
        check_ack(mark, saved, self.limits.state_bytes_max)
        return self.step("ack_input", live=live, worker=worker, epoch=epoch, n=n, saved=saved, mark=mark)

    def end_live(self, *, live: str, after_pending: bool = False) -> Awaitable[o.EndOutcome]:
        check_live(live)
        return self.step("end_live", live=live, after_pending=after_pending)

    # -- time

    def look(self, *, live: str) -> Awaitable[o.LookOutcome]:
        check_live(live)
        return self.step("look", live=live)

    def new_term(self, *, term: int) -> Awaitable[o.NewTermOutcome]:
        # The numbers of the term that begins must all fit: the floor follows from the term.
        check_number(term, "term", 1, NUMBER_MAX // self.limits.term_step - 3)
        return self.step("new_term", term=term)

    def _check_candidates(self, candidates: Candidates, pools: Sequence[str]) -> None:
        named: list[str] = []
        for candidate in candidates:
            if isinstance(candidate, Equals):
                check_id(candidate.pool, "pool")
                if not candidate.workers:
                    raise BadValue(f"equal candidates of Pool {candidate.pool} name no Worker")
                named += candidate.workers
            else:
                named.append(candidate)
        for what, given in (("candidates", named), ("Pools", pools)):
            if len(given) > self.limits.candidates_max:
                raise BadValue(f"{len(given)} {what} are given, at most {self.limits.candidates_max} are allowed")
        for worker in named:
            check_worker(worker)
        for pool in pools:
            check_id(pool, "pool")
