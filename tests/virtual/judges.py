"""The judges of one cell of a virtual run, beside those that it shares with chaos (`replay.py`, `ledger.py`).

Every step that the store runs is run on the model too, in the same order and at the same time: another answer, another
state or a broken invariant is a violation at that step. What was consumed is compared with the books at the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import hiredis

from dhsched.cells.fixed import cell_of
from dhsched.ownership import invariants
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Pulling
from dhsched.ownership.state import Live, State
from dhsched.store.raw import READ, decode
from dhsched.store.records.events import decode as decode_events
from dhsched.types import live_key
from tests.chaos import ledger
from tests.chaos.histories import Lost
from tests.chaos.ledger import Records
from tests.chaos.load import Told
from tests.chaos.replay import Account, Replay, Tally, counted
from tests.chaos.trace import COUNTED_AROUND, SCRIPTS, steps_of
from tests.virtual.answers import Answers
from tests.virtual.bounds import Bounds, standstill_max_s
from tests.virtual.keyspace import Keyspace, flat
from tests.virtual.loop import VirtualLoop
from tests.virtual.runtime import Recorder
from tests.virtual.store import StoreServer
from tests.virtual.swarm import Swarm
from tests.virtual.trace import Trace

VIOLATIONS_MAX = 20
TENANT = "default"
CONFIGURATION = ("pools", "digital_ids", "tenants", "keys")
SAID_S = 60.0  # A service that ends within this time after a loss may not have said so: its store may be away.
JOIN = "join_cells"  # No step, but the cell's count and the number of its next Worker are the model's too.
EMITS_TTL_MS = 3_600_000  # `ttl_s` of emit.lua.
GENERATIONS_PER_HOUR = 240
"""Of one live: two a minute are crash loops and stalls at the shortest limits; planned moves come on top."""


@dataclass
class Kept:
    """A moment that the store may be set back to."""

    data: Any
    replay: Replay
    at: float


class Violations:
    """What was found wrong in a run."""

    def __init__(self, loop: VirtualLoop, trace: Trace) -> None:
        self.lines: list[str] = []
        self.before_first: list[bytes] = []
        """The end of the trace when the first violation was found."""
        self.any = asyncio.Event()
        """Set at the first violation."""
        self._loop, self._trace = loop, trace

    def add(self, what: str) -> None:
        """A violation. Only the first ones are kept: what follows them is mostly their consequence."""
        line = f"{self._loop.now:.3f} s: {what}"
        if not self.lines:
            self.before_first = [*self._trace.latest]
            self.any.set()
        self._trace.note(f"violation {what}")
        if len(self.lines) < VIOLATIONS_MAX:
            self.lines.append(line)


class CellJudges:
    """The model beside the store of one cell, and the judges of what happens in this cell."""

    def __init__(
        self, loop: VirtualLoop, swarm: Swarm, store: StoreServer, trace: Trace, wrong: Callable[[str], None]
    ) -> None:
        self.cell = store.cell
        """The name of the cell, where there are several; else empty."""
        self.tally = Tally(lambda what, latest: self.wrong(what))
        self.current = Replay(self.tally, swarm.limits)
        self.lost: list[Lost] = []
        self.granted: dict[tuple[Any, ...], set[tuple[bytes, bytes]]] = defaultdict(set)
        """By live, Worker and epoch: the configuration and the state that the store gave each pull."""
        self.wrong = (lambda what: wrong(f"{what} (cell {store.cell})")) if store.cell else wrong
        self.answers = Answers(self.record, self.wrong)
        self.bounds = Bounds(loop, swarm, self.wrong)
        self._loop, self._swarm, self._keyspace, self._trace = loop, swarm, store.keyspace, trace
        self._prefix = store.keys.prefix.encode()
        self._where = f"{store.cell} ".encode() if store.cell else b""
        store.on_step = self.on_step

    def has(self, live: str) -> bool:
        """Return whether this is the cell of a live's id."""
        return not self.cell or cell_of(self._swarm.cell_names, live) == self.cell

    def record(self, live: str) -> Live | None:
        return self.current.state.lives.get(live)

    def configuration(self) -> dict[str, dict[bytes, bytes]]:
        """Return what must be equal in all cells: Pools, DigitalIDs, limits of tenants, and the key ring. A cell has no
        revision until something is changed there, and a copy of it has the revision 0."""
        read = self._keyspace.run
        found = {kind: dict(read(b"HGETALL", [self._prefix + kind.encode()]) or {}) for kind in CONFIGURATION}
        found["keys"].setdefault(b"rev", b"0")
        return {**found, "cell": {b"config_rev": read(b"HGET", [self._prefix + b"cell", b"config_rev"]) or b"0"}}

    def is_lost(self, worker: str) -> bool:
        record = self.current.state.workers.get(worker)
        return record is not None and bool(record.lost)

    def on_step(self, name: str, now: int, argv: list[bytes], reply: bytes) -> None:
        said = reply.replace(b"\r\n", b" ")
        self._trace.add(b"store %b%b %d %b => %b" % (self._where, name.encode(), now, b" ".join(argv), said))
        if name not in SCRIPTS and name not in COUNTED_AROUND and name != JOIN:
            return
        reader = hiredis.Reader()
        reader.feed(reply)
        answer = reader.gets()
        given = argv if name == "enter" else argv[:-1]  # The last argument is the home.
        self.current.tick += 1
        if name == JOIN:
            self.current.state = joined(self.current.state, int(given[1]), answer)
            return
        for taken in steps_of(self.current.tick, name, now, [each.decode() for each in given], answer):
            before = self.current.state
            self.current.follow(taken)
            if (live := taken.arguments.get("live")) and not self.has(live):
                self.wrong(f"cells: {taken.step} of {live} in cell {self.cell}, which is not that of its id")
            if isinstance(taken.answer, Pulling):
                generation = tuple(taken.arguments[name] for name in ("live", "worker", "epoch"))
                self.granted[generation].add((taken.answer.config, taken.answer.saved))
            if taken.arguments.get("cause") == "recover" and self.current.state is not before:
                self.bounds.on_recovery(before, self.current.state, taken.arguments["live"], taken.now)
        self.answers.blind = self.current.diverged
        self.answers.on_step()

    def begin_above(self, number: int) -> None:
        """Let every epoch be above a number, in the store and in the model."""
        self._keyspace.hset(self._prefix + b"cell", b"epoch_base", b"%d" % number)
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
        found = read_state(self._keyspace, self._prefix)
        if strange := [live for live in found.lives if not self.has(live)]:
            self.wrong(f"cells: cell {self.cell} has records of {sorted(strange)[:5]}, which are of other cells")
        now, limits = self.current.now, self._swarm.limits
        expected = without_old_emits(without_old_boots(self.current.state, now, limits), found, now)
        if not self.current.diverged and (differs := difference(without_old_boots(found, now, limits), expected)):
            self.wrong(f"model: the store's state differs: {differs}")
        for complaint in invariants.of_state(found):
            self.wrong(f"invariants: of the store's state: {complaint}")

    def at_end(self, told: Mapping[str, Told], recorder: Recorder, hours: float, *, ends: Iterable[float]) -> None:
        """What must be true of the whole run. `ends` are the times at which services ended, which could say nothing
        more."""
        taken_back, lost_homes = [], self._lost_homes()
        for each in self.lost:
            said = not each.homes.isdisjoint(lost_homes)
            silent = any(each.since <= end <= each.until + SAID_S for end in ends)
            taken_back.append(ledger.TakenBack(each.since, each.until, each.replay.accounts, said or silent, ()))
        books, records = self.current.accounts, self._own(recorder.records())
        own = {live: one for live, one in told.items() if self.has(live_key(TENANT, live))}
        swarm = self._swarm
        for complaint in ledger.check(records, own, books, swarm.capacity, taken_back, credit=swarm.credit):
            self.wrong(f"ledger: {complaint}")
        self._hangs(recorder)
        self._generations(books, hours)

    def _lost_homes(self) -> list[str]:
        """The homes of which an event says that their end was lost."""
        rows = decode_events(self._keyspace.xrange(self._prefix + b"events", b"-", b"+"))
        return [
            str(event.numbers.get("home", "")) for event in (row.event for row in rows) if event.kind == "store_lost"
        ]

    def _own(self, records: Records) -> Records:
        """What runtimes wrote down of the lives of this cell; of processes, if it is the first."""
        if not self.cell:
            return records
        first = self.cell == self._swarm.cell_names[0]
        return Records(
            [one for one in records.consumed if self.has(one.live)],
            records.running_max if first else {},
            {generation: times for generation, times in records.opened.items() if self.has(generation[0])},
            records.at_once if first else (),
        )

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


def read_state(keyspace: Keyspace, prefix: bytes) -> State:
    """The whole cell, as a client would read it."""
    raw = {}
    for key in keyspace.scan(b"0", b"MATCH", prefix + b"*")[1]:
        kind = keyspace.type(key)
        if kind in READ:
            command, *rest = READ[kind]
            value = keyspace.run(str(command).encode(), [key, *(str(each).encode() for each in rest)])
            raw[key.removeprefix(prefix).decode()] = [*flat(value)] if kind == b"zset" else value
    return decode(raw)


def joined(state: State, issued: int, answer: list[Any]) -> State:
    """The state after a service has asked a cell to be one of several. The cell counts the call, and numbers its
    Workers from `issued` on, unless it has refused: then the answer has no list. A second call changes no number,
    because the numbers are at `issued` or above it by then, also in a history that has forgotten the first call: a home
    has begun there, and its numbers have jumped further than the cells of a run are apart."""
    after = counted(state)
    if not answer[0]:
        return after
    return replace(after, cell=replace(after.cell, workers_issued=max(after.cell.workers_issued, issued)))


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
