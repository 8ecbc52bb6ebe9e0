"""The hostile side of a storm: what it knows, and when it sends what.

A hostile Worker has a machine key and boots of its own; a hostile viewer has a token for one live. Both send every
wrong value of every field of every message that they can send (hostile_links.py, hostile_requests.py,
hostile_publishing.py).

The honest half of the Worker is a process like the others (`evil-1`, deployment.py): it holds slots, pulls and acks.
The other half is here, on connections of its own with the same key and the same boot token. What it knows of others is
all that there is to know: the driver gives it the state of the cell. It goes on while the faults do, and then once
more alone (storm.py), and counts what it sent (`Coverage`).

Its traffic goes to loopback alone, at PER_S messages a second at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import aiohttp
from yarl import URL

from dhsched.access.bucket import Bucket
from dhsched.links import messages as m
from dhsched.ownership.state import Live, State
from dhsched.tokens import Boot, Tokens
from dhsched.types import MARK_BYTES, slot_tag
from tests.chaos.deployment import Deployment
from tests.chaos.hostile_values import (
    EVIL,
    HOSTILE,
    SINGLE,
    Coverage,
    Known,
    Row,
    is_hostile,
    is_lent,
)
from tests.chaos.load import path_of

PER_S = 1_000.0  # Messages a second of the hostile side; past this it waits.
REPEATS = 10_000
ANSWER_S = 2.0  # A connection that has not answered a ping for this long says nothing more about the message before it.
LATER_S = 0.05
AT_ONCE = 4  # Cells, and messages that are repeated, at the same time.
GIVES_AWAY = ("depart", "drain", "exit")
CONNECTIONS = 4  # On which a message is repeated: some messages wait for others, or for the store.
PASS_S = 40.0  # Every cell is sent once in this time, or a little slower.
REPEATING_S = 10.0  # A message is repeated for so long, then others have their turn.
SPARED = 0.8  # Share of exits and drains that are of another boot than the one that has lives.
PAUSE_S = 0.05  # After a connection that failed: a controller is down.
MARK = EVIL.encode().ljust(MARK_BYTES, b"!")


class NotNow(Exception):
    """This cannot be sent now: the hostile Worker has no slot, or a controller does not answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """A live and the Worker that it is on, with what a message about it would say."""

    live: str
    record: Live
    worker: str

    @property
    def tag(self) -> str:
        return slot_tag(self.live, self.record.epoch)


@dataclass
class Prey:
    """What the hostile Worker knows at the moment: its own boots, and one live of its own and one of another's."""

    state: State
    boot: Boot
    earlier: Boot
    own: Target
    other: Target

    @property
    def other_boot(self) -> Boot:
        return boot_of(self.state, self.other.worker)


def boot_of(state: State, worker: str, key: str = "") -> Boot:
    record = state.workers[worker]
    return Boot(worker, record.boot, record.name, record.pool, record.capacity, key)


class Part(Protocol):
    """One way to send something: its rows, one cell of them, and one of their messages many times.

    Both raise NotNow, or what a connection raises, if nothing could be sent, and return how many messages were."""

    @property
    def rows(self) -> Sequence[Row]: ...

    async def send(self, row: Row, kind: str) -> int: ...

    async def repeat(self, message: str, times: int) -> int: ...


@dataclass
class Hostile:
    """The hostile half. `state` returns the state of the cell; `leaks` are answers about what is not its own."""

    deployment: Deployment
    http: aiohttp.ClientSession
    state: Callable[[], State]
    seed: int
    repeats: int = REPEATS
    tell: Callable[[str], None] = print
    """Takes what must not be: an answer about what is not its own, a forged token that was accepted."""
    coverage: Coverage = field(default_factory=lambda: Coverage([]))

    def __post_init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self.rng = Random(f"hostile {self.seed}")
        self._bucket = Bucket(PER_S, time.monotonic())

    def add(self, part: Part) -> None:
        """Send what this part can send, too."""
        self._parts |= {row.message: part for row in part.rows}
        self.coverage.rows += part.rows

    # -- what is sent, and when

    async def run(self) -> None:
        """Send every cell again and again, and the valid messages `repeats` times, until cancelled."""
        await asyncio.gather(self._singles(), self._repeat_all(self.repeats))

    async def once(self, repeats: int, wait_s: float) -> None:
        """Send every cell once, and the valid messages `repeats` times; raise TimeoutError if that takes too long."""
        async with asyncio.timeout(wait_s):
            await self._all_of(self._shuffled())
            await self._repeat_all(repeats, more=True)

    async def fill(self, wait_s: float) -> None:
        """Send what is still lacking; raise TimeoutError if that takes too long."""
        async with asyncio.timeout(wait_s):
            await self._all_of([cell for cell in self._shuffled() if not self.coverage.sent[cell]])
            await self._repeat_all(self.repeats)

    async def _singles(self) -> None:
        while True:
            await asyncio.gather(self._all_of(self._shuffled()), asyncio.sleep(PASS_S))

    async def _all_of(self, cells: list[tuple[Row, str]]) -> None:
        """Send these cells, each until it could be sent, AT_ONCE at a time."""

        async def some() -> None:
            while cells:
                cell = cells.pop()
                while await self._try(self._part(cell).send, *cell) is None:
                    pass

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))

    def _part(self, cell: tuple[Row, str]) -> Part:
        return self._parts[cell[0].message]

    def _shuffled(self) -> list[tuple[Row, str]]:
        """Every cell in some order. Those with which the hostile Worker gives its lives away are sent last."""
        cells = [(row, kind) for row in self.coverage.rows for kind in SINGLE]
        self.rng.shuffle(cells)
        return sorted(cells, key=lambda cell: not cell[0].message.endswith(GIVES_AWAY))

    async def _repeat_all(self, repeats: int, *, more: bool = False) -> None:
        """Repeat each valid message so often, or with `more` so often once more."""
        free = asyncio.Semaphore(AT_ONCE)

        async def one(message: str) -> None:
            wanted = repeats + (self.coverage.repeats_of(message) if more else 0)
            # Counted there, and not by what `repeat` returns: a connection may fail after half of them.
            while (left := wanted - self.coverage.repeats_of(message)) > 0:
                async with free:
                    await self._try(self._parts[message].repeat, message, left)

        await asyncio.gather(*(one(message) for message in dict.fromkeys(row.message for row in self.coverage.rows)))

    async def _try(self, send: Callable[..., Awaitable[int]], *what: Any) -> int | None:
        try:
            async with asyncio.timeout(10 * ANSWER_S):
                return await send(*what)
        except NotNow:
            await self._lend()
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        await asyncio.sleep(PAUSE_S)
        return None

    async def pace(self, count: int = 1) -> None:
        """Wait until `count` more messages may be sent."""
        await asyncio.sleep(self._bucket.charge(count, time.monotonic()))

    async def _lend(self) -> None:
        """As an operator: make the hostile Worker ready again and move lent lives to it, if it has none."""
        state = self.state()
        worker, _ = boots_of(state)
        if not worker:
            return
        record = state.workers[worker]
        if record.mode != "ready":
            method, verb = ("POST", "uncordon") if record.mode == "cordoned" else ("DELETE", "drain")
            await self._operate(method, path_of(worker, verb))
        for live, each in state.lives.items():
            if is_lent(live) and each.state == "open" and each.selected != worker:
                body = {"expected_epoch": each.epoch, "target": worker}
                await self._operate("POST", f"/v1/lives/{live.partition('/')[2]}/reassign", body)

    async def _operate(self, method: str, path: str, body: Any = None) -> None:
        url = URL(self.rng.choice(self.deployment.dispatch) + path, encoded=True)
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with self.http.request(
                method, url, json=body, timeout=timeout, headers=self.deployment.access.headers()
            ) as response:
                await response.read()

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.deployment.access.ring)

    def prey(self, kind: type[m.Message]) -> Prey:
        """What the hostile Worker works with now. Raise NotNow if it has no boot, or no live, or there is no other."""
        state, key = self.state(), self.deployment.access.records["hostile"].id
        worker, others_of_it = boots_of(state)
        if not worker:
            raise NotNow
        own, others = list[Target](), list[Target]()
        for live, record in state.lives.items():
            if record.state != "ended" and record.selected:
                mine = record.selected == worker
                if mine or not is_hostile(record.selected):
                    (own if mine else others).append(Target(live, record, record.selected))
        others = [each for each in others if each.worker in state.workers and not is_lent(each.live)]
        if not own or not others:
            raise NotNow
        boot = boot_of(state, worker, key)
        never = Boot(f"{HOSTILE}#0", "boot-of-before", HOSTILE, boot.pool, boot.capacity, key)
        earlier = boot_of(state, others_of_it[0], key) if others_of_it else never
        if kind in (m.Exit, m.Drain) and self.rng.random() < SPARED and others_of_it:
            boot = earlier  # Otherwise it would hardly ever have a live.
        return Prey(state, boot, earlier, self.rng.choice(own), self.rng.choice(others))


def boots_of(state: State) -> tuple[str, list[str]]:
    """The boot of the honest half, empty if there is none, and all others of its name: it registers some in vain."""
    boots = [worker for worker, record in state.workers.items() if record.name == HOSTILE]
    there = [each for each in boots if not state.workers[each].gone and not state.workers[each].lost]
    best = max(there, key=lambda each: state.workers[each].beat, default="")
    return best, [each for each in boots if each != best]


# -- values


def known_of(name: str, prey: Prey, tokens: Tokens, own: Any) -> Known:
    return known_values(prey, tokens).get(name, Known(own))


def known_values(prey: Prey, tokens: Tokens) -> Mapping[str, Known]:
    """For each field of a Worker's messages: its own value, another's, one of before, one of the time to come."""
    own, other, state, boot, victim = prey.own, prey.other, prey.state, prey.boot, prey.other_boot
    mine, theirs = own.record, other.record
    worker, another = state.workers[own.worker], state.workers[other.worker]
    cell, next_id = state.cell, state.cell.workers_issued + 1
    earlier_home = cell.homes[-2].name if len(cell.homes) > 1 else "0" * 16
    ahead = Boot(f"{HOSTILE}#{next_id}", f"{EVIL}-next", HOSTILE, boot.pool, boot.capacity, boot.key)
    numbers = Known(mine.epoch, theirs.epoch, max(1, mine.epoch - 1), mine.epoch + 1)
    return {
        "name": Known(HOSTILE, victim.name, "evil-0", "evil-2"),
        "boot": Known(boot.boot, victim.boot, prey.earlier.boot, ahead.boot),
        "pool": Known(boot.pool, victim.pool, "evil-old", "evil-new"),
        "capacity": Known(boot.capacity, another.capacity + 100, boot.capacity - 1, boot.capacity + 1),
        "labels": Known("", f"{EVIL}=theirs", f"{EVIL}=old", f"{EVIL}=new"),
        "replaces": Known("", victim.worker, prey.earlier.worker, ahead.worker),
        "token": Known(tokens.issue(boot), tokens.issue(victim), expired(tokens, boot), tokens.issue(ahead)),
        "term": Known(cell.term, cell.term + 7, max(0, cell.term - 1), cell.term + 1),
        "rev": Known(worker.slots_rev, another.slots_rev, max(0, worker.slots_rev - 1), worker.slots_rev + 1),
        "busy": Known([own.tag], [other.tag], *tags_around(own)),
        "prepared": Known([own.tag], [other.tag], *tags_around(own)),
        "home": Known(cell.home, EVIL, earlier_home, f"{EVIL}-home"),
        "live": Known(own.live, other.live, own.live, f"default/{EVIL}"),
        "number": numbers,
        "epoch": numbers,
        "reason": Known(EVIL, f"{EVIL} {victim.worker} crashed", f"{EVIL} old", f"{EVIL} new"),
        "deadline_s": Known(60.0, 0.001, 0.0, 86_400.0),
        "after": Known(mine.acked, theirs.appended, max(0, mine.acked - 1), mine.appended + 1),
        "n": Known(mine.acked, theirs.appended, max(0, mine.acked - 1), mine.appended + 1),
        "mark": Known(mine.acked_mark, theirs.acked_mark or MARK, MARK, MARK),
        "data": Known(b'{"by": "EVIL"}', b'{"by": "EVIL of another"}', b'{"by": "EVIL old"}', b'{"by": "EVIL new"}'),
        "told": Known(mine.emitted[1], theirs.emitted[1] + 7, max(0, mine.emitted[1] - 1), mine.emitted[1] + 1),
        "lines": Known(*([["info", f"{EVIL} {whose}".encode()]] for whose in ("own", "theirs", "old", "new"))),
        "devices": Known(*([[f"{EVIL}-{whose}", 9, True]] for whose in ("own", "theirs", "old", "new"))),
        "device": Known("", f"{EVIL}-gpu", f"{EVIL}-old", f"{EVIL}-new"),
        "saved": Known(MARK, MARK + b"theirs", MARK + b"old", MARK + b"new"),
        **journals(mine.journal.last, theirs.journal.last),
    }


def journals(last: int, another: int) -> dict[str, Known]:
    """A change of the own journal, and its parts with wrong values."""
    firsts = (last + 1, another + 1, max(1, last), last + 9)
    return {
        "journal": Known(*({"drop": 0, "first": first, "entries": [MARK]} for first in firsts)),
        "journal.drop": Known(0, another, max(0, last - 1), last + 9),
        "journal.first": Known(last + 1, another + 1, max(1, last - 1), last + 9),
        "journal.entries": Known([MARK], [MARK + b"theirs"], [MARK + b"old"], [MARK + b"new"]),
    }


def tags_around(own: Target) -> tuple[list[str], list[str]]:
    """Tags of a slot of before and of one to come."""
    epoch = own.record.epoch
    return [slot_tag(own.live, max(1, epoch - 1))], [slot_tag(own.live, epoch + 1)]


def expired(tokens: Tokens, boot: Boot) -> str:
    """A token of this boot that was valid until two days ago."""
    return Tokens(tokens._ring, clock=lambda: time.time() - 3 * 86_400).issue(boot)
