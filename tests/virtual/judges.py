"""The judges of a virtual run, beside the judges that it shares with chaos (`replay.py`, `ledger.py`).

Every step that the store runs is run on the model too, in the same order and at the same time: another answer, another
state or a broken invariant is a violation at that step. What was consumed is compared with the books at the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import hiredis

from dhsched.ownership import invariants
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Pulling
from dhsched.ownership.state import Live, State
from dhsched.store.keys import Keys
from dhsched.store.raw import READ, decode
from tests.chaos import ledger
from tests.chaos.histories import Lost
from tests.chaos.load import Told
from tests.chaos.replay import Account, Replay, Tally
from tests.chaos.trace import COUNTED_AROUND, SCRIPTS, steps_of
from tests.virtual.answers import Answers
from tests.virtual.bounds import Bounds, standstill_max_s
from tests.virtual.keyspace import Keyspace, flat
from tests.virtual.loop import VirtualLoop
from tests.virtual.pictures import Pictures
from tests.virtual.runtime import Recorder
from tests.virtual.swarm import Swarm
from tests.virtual.trace import Trace

VIOLATIONS_MAX = 20
PREFIX = Keys("main").prefix.encode()
SAID_S = 60.0  # A service that ends within this time after a loss may not have said so: its store may be away.
EMITS_TTL_MS = 3_600_000  # `ttl_s` of emit.lua.
GENERATIONS_PER_HOUR = 240
"""Of one live: two a minute are crash loops and stalls at the shortest limits; planned moves come on top."""


@dataclass
class Kept:
    """A moment that the store may be set back to."""

    data: Any
    replay: Replay
    at: float


class Judges:
    """The model beside the store, and everything that was found wrong."""

    def __init__(self, loop: VirtualLoop, swarm: Swarm, keyspace: Keyspace, trace: Trace) -> None:
        self.violations: list[str] = []
        self.before_first: list[bytes] = []
        """The end of the trace when the first violation was found."""
        self.tally = Tally(lambda what, latest: self.wrong(what))
        self.current = Replay(self.tally, swarm.limits)
        self.lost: list[Lost] = []
        self.granted: dict[tuple[Any, ...], set[tuple[bytes, bytes]]] = defaultdict(set)
        """By live, Worker and epoch: the configuration and the state that the store gave each pull."""
        self.found = asyncio.Event()
        """Set at the first violation."""
        self.answers = Answers(self._record, self.wrong)
        self.pictures = Pictures(loop, self._record, self.wrong)
        self.bounds = Bounds(loop, swarm, self.wrong)
        self._loop, self._swarm, self._keyspace, self._trace = loop, swarm, keyspace, trace

    def _record(self, live: str) -> Live | None:
        return self.current.state.lives.get(live)

    def is_lost(self, worker: str) -> bool:
        record = self.current.state.workers.get(worker)
        return record is not None and bool(record.lost)

    def wrong(self, what: str) -> None:
        """A violation. Only the first ones are kept: what follows them is mostly their consequence."""
        line = f"{self._loop.now:.3f} s: {what}"
        if not self.violations:
            self.before_first = [*self._trace.latest]
            self.found.set()
        self._trace.note(f"violation {what}")
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(line)

    def on_step(self, name: str, now: int, argv: list[bytes], reply: bytes) -> None:
        said = reply.replace(b"\r\n", b" ")
        self._trace.add(b"store %b %d %b => %b" % (name.encode(), now, b" ".join(argv), said))
        if name not in SCRIPTS and name not in COUNTED_AROUND:
            return
        reader = hiredis.Reader()
        reader.feed(reply)
        given = argv if name == "enter" else argv[:-1]  # The last argument is the home.
        self.current.tick += 1
        for taken in steps_of(self.current.tick, name, now, [each.decode() for each in given], reader.gets()):
            before = self.current.state
            self.current.follow(taken)
            if isinstance(taken.answer, Pulling):
                generation = tuple(taken.arguments[name] for name in ("live", "worker", "epoch"))
                self.granted[generation].add((taken.answer.config, taken.answer.saved))
            if taken.arguments.get("cause") == "recover" and self.current.state is not before:
                self.bounds.on_recovery(before, self.current.state, taken.arguments["live"], taken.now)
        self.answers.blind = self.current.diverged
        self.answers.on_step()

    def begin_above(self, number: int) -> None:
        """Let every epoch be above a number, in the store and in the model."""
        self._keyspace.hset(PREFIX + b"cell", b"epoch_base", b"%d" % number)
        state = self.current.state
        self.current.state = replace(state, cell=replace(state.cell, epoch_base=number))

    # -- a store that is set back

    def keep(self) -> Kept:
        return Kept(self._keyspace.snapshot(), self.current.branch(), self._loop.now)

    def part(self, kept: Kept) -> None:
        """The store has another history from now on; ticks go on, so that no two steps have the same."""
        earlier = frozenset(row.name for row in kept.replay.state.cell.homes[:-1])
        self.lost.append(Lost(self.current, earlier, since=kept.at, until=self._loop.now))
        kept.replay.tick = self.current.tick
        self.current = kept.replay
        self.answers.set_back()

    # -- now and then, and at the end

    def look_at_store(self) -> None:
        """Read the store's data as a state: it is the model's, and the invariants hold of it."""
        found = read_state(self._keyspace)
        now, limits = self.current.now, self._swarm.limits
        expected = without_old_emits(without_old_boots(self.current.state, now, limits), found, now)
        if not self.current.diverged and (differs := difference(without_old_boots(found, now, limits), expected)):
            self.wrong(f"model: the store's state differs: {differs}")
        for complaint in invariants.of_state(found):
            self.wrong(f"invariants: of the store's state: {complaint}")

    def at_end(
        self,
        told: Mapping[str, Told],
        recorder: Recorder,
        hours: float,
        *,
        lost_homes: Collection[str],
        ends: Iterable[float],
    ) -> None:
        """What must be true of the whole run. `lost_homes` are those of which an event says that their end is lost, and
        `ends` the times at which services ended, which could say nothing more."""
        taken_back = []
        for each in self.lost:
            said = not each.homes.isdisjoint(lost_homes)
            silent = any(each.since <= end <= each.until + SAID_S for end in ends)
            taken_back.append(ledger.TakenBack(each.since, each.until, each.replay.accounts, said or silent, ()))
        books = self.current.accounts
        swarm = self._swarm
        for complaint in ledger.check(recorder.records(), told, books, swarm.capacity, taken_back, credit=swarm.credit):
            self.wrong(f"ledger: {complaint}")
        self._hangs(recorder)
        self._generations(books, hours)

    def _hangs(self, recorder: Recorder) -> None:
        """A hung runtime is replaced: a later generation of its live opens, or the live ends."""
        most_s = standstill_max_s(self._swarm)
        opened: dict[str, list[float]] = {}
        for (live, _, _), times in recorder.opened.items():
            opened.setdefault(live, []).extend(times)
        for at, live, epoch in recorder.hung:
            record = self.current.state.lives.get(live)
            over = record is None or record.state == "ended"
            if not over and self._loop.now - at > most_s and not any(at < time <= at + most_s for time in opened[live]):
                self.wrong(f"hang: {live}@{epoch} hung at {at:.1f} s and was not replaced within {most_s:.0f} s")

    def _generations(self, books: Mapping[str, Account], hours: float) -> None:
        for live, account in books.items():
            causes = Counter(each.cause for each in account.generations.values())
            own = causes["recover"]
            if own > 20 + GENERATIONS_PER_HOUR * max(hours, 0.1):
                self.wrong(f"generations: {live} had {own} recoveries in {hours:g} hours")


def read_state(keyspace: Keyspace) -> State:
    """The whole cell, as a client would read it."""
    raw = {}
    for key in keyspace.scan(b"0", b"MATCH", PREFIX + b"*")[1]:
        kind = keyspace.type(key)
        if kind in READ:
            command, *rest = READ[kind]
            value = keyspace.run(str(command).encode(), [key, *(str(each).encode() for each in rest)])
            raw[key.removeprefix(PREFIX).decode()] = [*flat(value)] if kind == b"zset" else value
    return decode(raw)


def without_old_boots(state: State, now: int, limits: Limits) -> State:
    """The state without counts of boots whose window is over: they decide nothing, and the store forgets them later."""
    kept = {name: row for name, row in state.blame.items() if now < row[0] + limits.boots_window_ms}
    return replace(state, blame=kept)


def without_old_emits(model: State, found: State, now: int) -> State:
    """The model's state without messages of runtimes that the store may have forgotten: EMITS_TTL_MS after the last,
    which the model does not do. What the store still has is the end of what the model has."""
    lives = dict(model.lives)
    for live, record in model.lives.items():
        there = found.lives.get(live)
        if there is None or there.emits == record.emits or now < record.created_at + EMITS_TTL_MS:
            continue
        if record.emits[len(record.emits) - len(there.emits) :] == there.emits:
            lives[live] = replace(record, emits=there.emits)
    return replace(model, lives=lives)


def difference(found: State, expected: State) -> str:
    """The first part in which two states differ; empty if they are equal."""
    for name in (each.name for each in fields(State) if each.compare):
        one, other = getattr(found, name), getattr(expected, name)
        if one == other:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            key = next(each for each in sorted({*one, *other}, key=str) if one.get(each) != other.get(each))
            return f"{name}[{key}] is {one.get(key)}, the model's is {other.get(key)}"
        return f"{name} is {one}, the model's is {other}"
    return ""
