"""The world of spec/Failover.tla: a store of several servers, explored with the product's own functions.

A server's log is replayed through the model: `enter` begins a home, a call is a `place` with its operation id, so that
numbers, repetitions, positions and homes are the product's answers and not the world's. Servers, replication and
connections are the world's own.

Projection: the key has every variable of the specification in its order, but for `bad`. Names of homes are h1, h2, ...;
the model's numbers are one higher, since the live is created with number 1 before anything begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Committed
from dhsched.ownership.state import EMPTY, State
from dhsched.ownership.steps import STEPS, take
from dhsched.ownership.steps.enter import is_home, survives
from dhsched.ownership.steps.place import Create
from spec.canonical import NOW
from spec.configuration import Configuration
from spec.explore import Move
from spec.shapes import boot, changed
from spec.stores import POOL

LIVE = "t/L1"
LIMITS = Limits()
NO_LINK, NO_CALL, NOT_TOLD = (0, 0, 0), ("none", 0, 0), (0, 0)
Entry = tuple[str, int, int]
Log = tuple[Entry, ...]
Key = tuple[Any, ...]
LOG, OF, NAME, NAMES, USED, LINK, CALL, TOLD, LOST, SENT, REFUSED, ISSUED = range(12)


@dataclass(frozen=True, slots=True)
class History:
    """What a log comes to: the model's state, and which calls are in it."""

    state: State
    done: frozenset[int]
    block: int

    @property
    def home(self) -> int:
        return int(self.state.cell.home[1:])

    @property
    def position(self) -> int:
        return self.state.cell.pos


class Failover:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = (
        *("log", "of", "name", "names", "used", "link", "call"),
        *("told", "lost", "sent", "refused", "issued"),
    )

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        """`strict` has no meaning here: a key is its projection."""
        self.c = configuration
        self.on = configuration.on
        self.servers = range(1, self.c["NS"] + 1)
        self.clients = range(1, self.c["NC"] + 1)
        self.ops = range(1, self.c["NO"] + 1)
        self.history = cache(self.replay)

    def initial(self) -> Key:
        first: Log = (("enter", 1, 0),)
        return (
            tuple(first for _ in self.servers),
            tuple(0 if s == 1 else 1 for s in self.servers),
            tuple(1 if s == 1 else 0 for s in self.servers),
            1,
            (False,) * (self.c["Names"] - 1),
            (NO_LINK,) * len(self.clients),
            (NO_CALL,) * len(self.clients),
            ((NOT_TOLD,) * len(self.ops),) * len(self.clients),
            ((False,) * len(self.ops),) * len(self.clients),
            (False,) * len(self.ops),
            (False,) * len(self.ops),
            (False,) * (self.c["Names"] * self.c["PerHome"]),
        )

    def projection(self, key: Key) -> tuple[Any, ...]:
        return key

    def problems(self, key: Key) -> Iterator[str]:
        for o in self.ops:
            having = [s for s in self.servers if o in self.history(key[LOG][s - 1]).done]
            if key[REFUSED][o - 1] and having:
                yield f"NotRun: call {o} was refused, and servers {having} have it"
            for c in self.clients:
                if key[TOLD][c - 1][o - 1] == NOT_TOLD:
                    continue
                if 0 < self.c["Replicas"] == len(self.servers) - 1 and len(having) < len(self.servers):
                    yield f"Kept: client {c} was told of call {o}, and only servers {having} have it"
                server, greeted, _ = key[LINK][c - 1]
                if not server or key[OF][server - 1] or key[LOST][c - 1][o - 1] or server in having:
                    continue
                if greeted == key[NAME][server - 1] == self.history(key[LOG][server - 1]).home:
                    yield f"Reported: client {c} was told of call {o}, and home {greeted} does not have it"

    # -- what a log says

    def replay(self, log: Log) -> History:
        if not log:
            return History(self.fresh(), frozenset(), 0)
        before = self.history(log[:-1])
        kind, a, b = log[-1]
        if kind == "enter":
            at = before.state.cell
            jump = b * self.c["PerHome"] + 1 - max(at.epoch_base, at.epoch_floor)
            state, _ = STEPS["enter"](before.state, NOW, LIMITS, server=f"h{a}", jump=jump)
            return History(state, before.done, b)
        if kind in ("issue", "again"):
            state, outcome = self.place(before, a)
            if outcome.again != (kind == "again") or (b and outcome.generation.epoch - 1 != b):
                raise AssertionError(f"{log} comes to {outcome}")
            return History(state, before.done | {a}, before.block)
        return before

    def fresh(self) -> State:
        state = EMPTY
        for w in (1, 2):
            new = {"name": f"w{w}", "boot": boot(w), "pool": POOL, "capacity": 9}
            state, registered = STEPS["register_worker"](state, NOW, LIMITS, **new)
            state, _ = STEPS["report"](state, NOW, LIMITS, worker=registered.worker, boot=boot(w))
        create = Create(digital_id="d", fingerprint="f")
        first = {"operation": "first", "cause": "create", "create": create, "pools": (POOL,)}
        state, _ = STEPS["place"](state, NOW, LIMITS, live=LIVE, **first)
        return state

    def place(self, history: History, o: int) -> tuple[State, Committed]:
        """The call itself: a commit of the next generation, on the Worker that does not have the live."""
        record = history.state.lives[LIVE]
        candidates = tuple(worker for worker in history.state.workers if worker != record.selected)
        wish = {"operation": f"op{o}", "cause": "reassign", "expected": record.epoch, "candidates": candidates}
        state, outcome = take("place", history.state, NOW, LIMITS, live=LIVE, **wish)
        assert isinstance(outcome, Committed), outcome
        return state, outcome

    def fits(self, key: Key, c: int) -> bool:
        server, greeted, _ = key[LINK][c - 1]
        cell = self.history(key[LOG][server - 1]).state.cell
        return is_home(cell, greeted=f"h{greeted}", server=f"h{key[NAME][server - 1]}")

    # -- steps

    def moves(self, key: Key) -> Iterator[Move]:
        for s in self.servers:
            yield from self.server_moves(key, s)
        for c in self.clients:
            for s in self.servers:
                if key[OF][s - 1] == 0:
                    yield from self.greets(key, c, s)
            server = key[LINK][c - 1][0]
            linked = server and key[OF][server - 1] == 0
            kind, o, position = key[CALL][c - 1]
            if kind == "none" and linked:
                for o in (c,) if "own" in self.on else self.ops:
                    if not key[REFUSED][o - 1] and key[TOLD][c - 1][o - 1] == NOT_TOLD:
                        yield from self.calls(key, c, o)
            elif kind != "none":
                yield f"client {c} gives up call {o}", put(key, {CALL: changed(key[CALL], c, NO_CALL)}), ()
                if linked:
                    yield from self.settles(key, c) if kind == "ran" else self.tells(key, c, o, position)

    def server_moves(self, key: Key, s: int) -> Iterator[Move]:
        logs, of, names = key[LOG], key[OF], key[NAMES]
        mine, leader = logs[s - 1], of[s - 1]
        named = {NAME: changed(key[NAME], s, names + 1), NAMES: names + 1}
        if leader:
            theirs = logs[leader - 1]
            if mine != theirs:
                copied = theirs[: len(mine) + 1] if theirs[: len(mine)] == mine else theirs
                yield f"server {s} copies", put(key, {LOG: changed(logs, s, copied)}), ()
            if names < self.c["Names"]:
                yield f"promote server {s}", put(key, {OF: changed(of, s, 0), **named}), ()
        elif "restarts" in self.on and names < self.c["Names"]:
            for k in range(1, len(mine)):
                links = tuple(NO_LINK if link[0] == s else link for link in key[LINK])
                calls = tuple(NO_CALL if key[LINK][c][0] == s else call for c, call in enumerate(key[CALL]))
                back = {LOG: changed(logs, s, mine[:k]), LINK: links, CALL: calls, **named}
                yield f"server {s} restarts with {k} entries", put(key, back), ()
        for p in self.servers:
            if ("demotes" in self.on or leader) and p != s and of[p - 1] == 0 and leader != p:
                yield f"server {s} follows {p}", put(key, {OF: changed(of, s, p)}), ()

    def greets(self, key: Key, c: int, s: int) -> Iterator[Move]:
        log, name = key[LOG][s - 1], key[NAME][s - 1]
        before = self.history(log)
        free = [b for b, used in enumerate(key[USED], 1) if not used and b > before.block]
        if before.home == name:
            entries: list[tuple[Log, tuple[bool, ...]]] = [(log, key[USED])]
        elif len(log) < self.c["Length"]:
            entries = [((*log, ("enter", name, b)), changed(key[USED], b, True)) for b in free]
        else:
            entries = []
        for after, used in entries:
            history = self.history(after)
            homes = history.state.cell.homes
            lost = tuple(
                was or (told != NOT_TOLD and not survives(homes, f"h{told[0]}", told[1], history.position))
                for was, told in zip(key[LOST][c - 1], key[TOLD][c - 1], strict=True)
            )
            greeted = {
                LOG: changed(key[LOG], s, after),
                USED: used,
                LINK: changed(key[LINK], c, (s, name, 0)),
                CALL: changed(key[CALL], c, NO_CALL),
                LOST: changed(key[LOST], c, lost),
            }
            yield f"client {c} greets server {s}, home {name}", put(key, greeted), ()

    def calls(self, key: Key, c: int, o: int) -> Iterator[Move]:
        server, greeted, _ = key[LINK][c - 1]
        log = key[LOG][server - 1]
        history = self.history(log)
        if not self.fits(key, c):
            for gives_up in (False, True):
                if not (gives_up and key[SENT][o - 1]):
                    no = {LINK: changed(key[LINK], c, NO_LINK), REFUSED: changed(key[REFUSED], o, gives_up)}
                    yield f"client {c} is told HOME for call {o}", put(key, no), ()
            return
        state, outcome = self.place(history, o)
        n, wrong = outcome.generation.epoch - 1, tuple[str, ...]()
        if len(log) == self.c["Length"] or not (outcome.again or n <= (history.block + 1) * self.c["PerHome"]):
            return
        after = (*log, ("again", o, 0) if outcome.again else ("issue", o, n))
        ran = {
            SENT: changed(key[SENT], o, True),
            LOG: changed(key[LOG], server, after),
            LINK: changed(key[LINK], c, (server, greeted, len(after))),
        }
        if not outcome.again:
            ran[ISSUED] = changed(key[ISSUED], n, True)
            if key[ISSUED][n - 1] and "input" not in self.on:
                wrong = (f"Twice: {n} was issued before",)
        label = f"client {c} runs call {o} on server {server}"
        position = state.cell.pos
        yield f"{label}, unheard", put(key, ran), wrong
        if self.c["Replicas"]:
            yield label, put(key, {**ran, CALL: changed(key[CALL], c, ("ran", o, position))}), wrong
        else:
            yield label, put(key, {**ran, TOLD: self.told(key, c, o, position)}), wrong

    def told(self, key: Key, c: int, o: int, position: int) -> tuple[Any, ...]:
        return changed(key[TOLD], c, changed(key[TOLD][c - 1], o, (key[LINK][c - 1][1], position)))

    def settles(self, key: Key, c: int) -> Iterator[Move]:
        server, greeted, _ = key[LINK][c - 1]
        log, (_, *call) = key[LOG][server - 1], key[CALL][c - 1]
        if not self.fits(key, c):
            left = {LINK: changed(key[LINK], c, NO_LINK), CALL: changed(key[CALL], c, NO_CALL)}
            yield f"client {c} may not settle", put(key, left), ()
        elif len(log) < self.c["Length"]:
            wrote = {
                LOG: changed(key[LOG], server, (*log, ("settle", 0, 0))),
                LINK: changed(key[LINK], c, (server, greeted, len(log) + 1)),
                CALL: changed(key[CALL], c, ("waits", *call)),
            }
            yield f"client {c} settles", put(key, wrote), ()

    def tells(self, key: Key, c: int, o: int, position: int) -> Iterator[Move]:
        server, greeted, end = key[LINK][c - 1]
        log = key[LOG][server - 1]
        followers = [key[LOG][r - 1] for r in self.servers if key[OF][r - 1] == server]
        reached = [theirs for theirs in followers if log[: len(theirs)] == theirs and len(theirs) >= end]
        if len(reached) >= self.c["Replicas"] and key[NAME][server - 1] == greeted:
            others = [s for s in self.servers if s != server and key[OF][s - 1] == 0]
            all_must = self.c["Replicas"] == len(self.servers) - 1
            wrong = (f"OneSide: client {c} is told, and {others} are primaries too",) if others and all_must else ()
            said = {TOLD: self.told(key, c, o, position), CALL: changed(key[CALL], c, NO_CALL)}
            yield f"client {c} is told of call {o}", put(key, said), wrong


def put(key: Key, values: dict[int, Any]) -> Key:
    """The same state with some variables changed."""
    return tuple(values.get(place, value) for place, value in enumerate(key))
