"""Random walks of the pure steps, each step checked against the invariants and a ledger of input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Any

from dhsched.ownership import invariants, items
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import (
    Appended,
    Committed,
    Departed,
    Items,
    Outcome,
    Pulling,
    Recover,
    Registered,
    Reported,
)
from dhsched.ownership.state import EMPTY, Live, State
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.types import split_tag
from tests.conformance.operations import journal
from tests.harness.walk_limits import LIMITS
from tests.scenarios.language import outcome_word

SEEDS = 80
STEPS_EACH = 300
SEED_VARIABLE = "DHSCHED_WALK_SEED"
COMMAND = f"{SEED_VARIABLE}={{seed}} .venv/bin/pytest tests/unit/test_model_walk.py -k every_outcome"
LIVES = ("t/L", "t/M", "u/L")


WEIGHTS = {
    "register_worker": 1.5,
    "report": 10,
    "set_worker": 2.5,
    "expire_worker": 1,
    "depart": 7,
    "place": 16,
    "reserve": 6,
    "hold": 5,
    "cancel": 0.7,
    "pull": 11,
    "append_input": 13,
    "release_input": 14,
    "ack_input": 12,
    "emit": 3,
    "end_live": 1,
    "look": 12,
    "new_term": 0.2,
    "enter": 0.2,
}


STEP_NAMES = list(WEIGHTS)
CUMULATED = list(accumulate(WEIGHTS.values()))


class Broken(AssertionError):
    """The walk met a state or a step that must not be."""


@dataclass
class Ledger:
    """I6, item by item, for one life of one live: what was accepted, and what reached a runtime."""

    accepted: dict[int, bytes] = field(default_factory=dict)
    delivered: set[int] = field(default_factory=set)
    handed: dict[tuple[int, int], int] = field(default_factory=dict)  # (epoch, pull) to the last item that it got.
    got: dict[int, int] = field(default_factory=dict)  # Epoch to the last item that its runtime got.

    def append(self, seq: int, payload: bytes) -> list[str]:
        again = [f"I6: item {seq} was accepted twice"] if seq in self.accepted else []
        self.accepted[seq] = payload
        return again

    def pull(self, epoch: int, pull_no: int, after: int) -> None:
        self.handed[epoch, pull_no] = after

    def release(self, pull: tuple[int, int], acked: int, released: Items) -> list[str]:
        """What is handed out is what was accepted, and no pull skips an item that is not settled."""
        numbers = range(released.first, released.first + len(released.items))
        stored = dict(zip(numbers, released.items, strict=True))
        wrong = [n for n, blob in stored.items() if items.read(blob).payload != self.accepted[n]]
        skipped = [n for n in range(self.handed.get(pull, 0) + 1, released.first) if n > acked]
        self.delivered.update(numbers)
        self.handed[pull] = max(self.handed.get(pull, 0), numbers[-1])
        self.got[pull[0]] = max(self.got.get(pull[0], 0), numbers[-1])
        broken = [f"I6: items {wrong} are not what was accepted"] if wrong else []
        return broken + ([f"I6: items {skipped} were skipped by pull {pull}"] if skipped else [])

    def settle(self, old: Live, new: Live) -> list[str]:
        """Every number up to acked reached a runtime, or was counted."""
        missing = [n for n in range(old.acked + 1, new.acked + 1) if n not in self.delivered]
        counted = new.dropped - old.dropped
        if len(missing) <= counted:
            return []
        return [f"I6: items {missing} are settled and never reached a runtime; {counted} were counted"]


class Walk:
    """One seed's callers, clock and state."""

    def __init__(self, seed: int, limits: Limits = LIMITS) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.limits = limits
        self.state = EMPTY
        self.now = 1_000
        self.steps = 0
        self.trace = invariants.Releases()
        self.boots: dict[str, str] = {"Z#99": "nobody"}
        self.tables: dict[str, tuple[int, int]] = {}
        self.operations = ["op-0"]
        self.next: tuple[str, dict[str, Any]] | None = None
        self.ledgers: dict[str, Ledger] = {}
        for name in "ABC":
            pool = "spare" if name == "C" else "gpu"
            given = {"name": name, "boot": f"boot-{name}", "pool": pool, "capacity": self.rng.randint(1, 3)}
            self.take("register_worker", given)
        for worker in sorted(self.state.workers):
            self.take("report", {"worker": worker, "boot": self.boots[worker]})

    def step(self) -> tuple[str, Outcome]:
        """One step of a random caller, checked."""
        if self.rng.random() < 0.3:
            self.now += self.rng.choice((1, 10, 50, 100, 300))
        if self.next and self.rng.random() < 0.6:
            name, given = self.next
        else:
            name = self.rng.choices(STEP_NAMES, cum_weights=CUMULATED)[0]
            given = getattr(self, name)()
        outcome = self.take(name, given)
        self.next = self.follow(given, outcome)
        return name, outcome

    def follow(self, given: dict[str, Any], outcome: Outcome) -> tuple[str, dict[str, Any]] | None:
        """What a sensible caller does next; chance alone never gets to the third death over one item."""
        match outcome:
            case Recover(epoch=epoch, worker=worker):
                place = {"operation": f"op-{self.steps}", "cause": "recover", "expected": epoch}
                return "place", {"live": given["live"], **place, "candidates": [*self.workers(2), worker]}
            case Committed(generation=made):
                pull = {"worker": made.worker, "epoch": made.epoch, "after": 0, "controller": "c1"}
                return "pull", {"live": given["live"], **pull}
            case Pulling(pull_no=pull_no, after=after):
                generation = {key: given[key] for key in ("live", "worker", "epoch")}
                return "release_input", {**generation, "pull_no": pull_no, "after": after, "credit": 2}
            case Items() if self.rng.random() < 0.4:
                return "depart", {"worker": given["worker"], "live": given["live"], "number": given["epoch"]}
            case Departed(was="running" | "starting"):
                return "look", {"live": given["live"]}
        return None

    def take(self, name: str, given: dict[str, Any]) -> Outcome:
        outcome: Outcome
        before = self.state
        self.state, outcome = STEPS[name](before, self.now, self.limits, **given)
        self.steps += 1
        self.remember(given, outcome)
        # A refusal that hands back the very same state has changed nothing: there is nothing to check.
        broken = [] if self.state is before else self.check(before, given, outcome)
        broken += self.follow_items(before, given, outcome)
        if broken:
            command = COMMAND.format(seed=self.seed)
            raise Broken(
                f"seed {self.seed}, step {self.steps}: {name} {given} answered {outcome}\n  "
                + "\n  ".join(broken)
                + f"\nrepeat with: {command}"
            )
        return outcome

    def check(self, before: State, given: dict[str, Any], outcome: Outcome) -> list[str]:
        broken = [*invariants.of_state(self.state), *invariants.of_step(before, self.state)]
        epoch = next((given[key] for key in ("expected", "epoch", "number") if key in given), None)
        if epoch is not None:
            broken += invariants.old_work(before, self.state, given["live"], epoch)
        return broken

    def follow_items(self, before: State, given: dict[str, Any], outcome: Outcome) -> list[str]:
        live = given.get("live", "")
        record = self.state.lives.get(live)
        if record is None or live not in before.lives:
            self.ledgers[live] = Ledger()  # A new life of the id, or none.
            return []
        ledger = self.ledgers[live]
        if isinstance(outcome, Appended):
            broken = ledger.append(outcome.seq, given["payload"]) + ledger.settle(before.lives[live], record)
            if outcome.mark:
                to, passed = given["through"], Items(outcome.seq, record.pending[-1:])
                broken += self.trace.release(live, to.worker, to.epoch, to.pull_no)
                broken += ledger.release((to.epoch, to.pull_no), record.acked, passed)
            return broken
        if isinstance(outcome, Items):
            broken = self.trace.release(live, given["worker"], given["epoch"], given["pull_no"])
            if self.rng.random() < 0.15:
                return broken  # The reply is lost: nobody got anything.
            return broken + ledger.release((given["epoch"], given["pull_no"]), record.acked, outcome)
        if isinstance(outcome, Pulling):
            ledger.pull(given["epoch"], outcome.pull_no, outcome.after)
        return ledger.settle(before.lives[live], record)

    def remember(self, given: dict[str, Any], outcome: Outcome) -> None:
        if isinstance(outcome, Registered):
            self.boots[outcome.worker] = given["boot"]
        if isinstance(outcome, Reported):
            self.tables[given["worker"]] = (outcome.term, outcome.rev)

    # -- whom and what the callers name

    def often(self, right: Any, wrong: Callable[[], Any], share: float = 0.85) -> Any:
        return right if self.rng.random() < share else wrong()

    def a_worker(self) -> str:
        known = sorted(self.state.workers)
        return self.rng.choice(known if known and self.rng.random() < 0.9 else sorted(self.boots))

    def workers(self, most: int) -> list[str]:
        return [self.a_worker() for _ in range(self.rng.randint(0, most))]

    def pools(self) -> list[str]:
        return self.rng.choice(([], ["gpu"], ["gpu", "spare"], ["spare"]))

    def a_live(self) -> tuple[str, Live | None]:
        known = sorted(self.state.lives)
        live = self.rng.choice(known if known and self.rng.random() < 0.85 else LIVES)
        return live, self.state.lives.get(live)

    def a_number(self, record: Live | None) -> int:
        return self.rng.randint(0, (record.issued if record else 0) + 1)

    def a_generation(self) -> dict[str, Any]:
        live, record = self.a_live()
        worker = self.often(record.selected if record else "A#1", self.a_worker, 0.95)
        epoch = self.often(record.epoch if record else 1, lambda: self.a_number(record), 0.95)
        return {"live": live, "worker": worker, "epoch": epoch}

    # -- one method per step: its arguments

    def register_worker(self) -> dict[str, Any]:
        name = self.rng.choice("ABC")
        mine = sorted(worker for worker in self.state.workers if worker.startswith(name))
        boot = self.often(f"boot-{self.steps}", lambda: self.rng.choice(sorted(self.boots.values())))
        replaces = mine[-1] if mine and self.rng.random() < 0.9 else ""
        pool = "spare" if name == "C" else "gpu"
        return {"name": name, "boot": boot, "pool": pool, "capacity": self.rng.randint(1, 3), "replaces": replaces}

    def report(self) -> dict[str, Any]:
        worker = self.a_worker()
        term, rev = self.tables.get(worker, (0, 0))
        if self.rng.random() < 0.03:
            term, rev = self.rng.choice(((term + 1, rev), (term or 1, rev + 10**6)))
        tags = sorted(self.state.slots.get(worker, {})) or ["t/L@1"]
        boot = self.often(self.boots[worker], lambda: "boot-x", 0.97)
        return {"worker": worker, "boot": boot, "term": term, "rev": rev, "busy": self.rng.sample(tags, 1)}

    def set_worker(self) -> dict[str, Any]:
        verbs = ("cordon", "drain", "drain", "uncordon", "uncordon", "undrain", "undrain", "exit", "reap", "reap")
        return {"worker": self.a_worker(), "verb": self.rng.choice(verbs)}

    def expire_worker(self) -> dict[str, Any]:
        worker = self.a_worker()
        beat = self.state.workers[worker].beat if worker in self.state.workers else 0
        return {"worker": worker, "beat": self.often(beat, lambda: beat + self.rng.choice((-1, 1)))}

    def depart(self) -> dict[str, Any]:
        worker = self.a_worker()
        tags = sorted(self.state.slots.get(worker, {}))
        if self.rng.random() < 0.9:
            tags = [tag for tag in tags if self.state.slots[worker][tag] == "departing"]
        if not tags or self.rng.random() < 0.1:
            live, record = self.a_live()
            return {"worker": worker, "live": live, "number": self.a_number(record)}
        live, number = split_tag(self.rng.choice(tags))
        return {"worker": worker, "live": live, "number": number}

    def place(self) -> dict[str, Any]:
        live, record = self.a_live()
        operation = self.often(f"op-{self.steps}", lambda: self.rng.choice(self.operations), 0.93)
        self.operations = [*self.operations[-5:], operation]
        common: dict[str, Any] = {"live": live, "operation": operation, "pools": self.pools()}
        if len(self.state.lives) < len(LIVES) and self.rng.random() < 0.6:
            live = next(each for each in LIVES if each not in self.state.lives)
            record, common["live"] = None, live
        if (record is None and self.rng.random() < 0.97) or self.rng.random() < 0.05:
            fingerprint, lives_max = self.often("f", lambda: "g"), self.often(0, lambda: 1)
            idle_ms = 1_000 * (self.steps % 7 == 0)
            create = Create("anna", fingerprint, config=b"c", priority=LIVES.index(live), idle_ms=idle_ms)
            common |= {"lives_max": lives_max}
            return {**common, "cause": "create", "create": create, "candidates": self.workers(3)}
        cause = self.rng.choice(("recover", "recover", "recover", "reassign", "drain", "rebalance"))
        target = [record.move.target] if record and record.move and self.rng.random() < 0.5 else []
        return {
            **common,
            "cause": cause,
            "expected": self.often(record.epoch if record else 1, lambda: self.a_number(record), 0.93),
            "candidates": target + self.workers(2),
            "at_boundary": self.rng.random() < (0.7 if target else 0.2),
        }

    def reserve(self) -> dict[str, Any]:
        live, record = self.a_live()
        expected = self.often(record.epoch if record else 1, lambda: self.a_number(record))
        return {"live": live, "expected": expected, "candidates": self.workers(4)}

    def hold(self) -> dict[str, Any]:
        live, record = self.a_live()
        moving = sorted(name for name, each in self.state.lives.items() if each.move)
        if moving and self.rng.random() < 0.9:
            live = self.rng.choice(moving)
            record = self.state.lives[live]
        right = record.move.number if record and record.move else 1
        return {"live": live, "number": self.often(right, lambda: self.a_number(record))}

    cancel = hold

    def pull(self) -> dict[str, Any]:
        given = self.a_generation()
        ledger = self.ledgers.get(given["live"], Ledger())
        return {**given, "after": ledger.got.get(given["epoch"], 0), "controller": self.rng.choice(("c1", "c2"))}

    def append_input(self) -> dict[str, Any]:
        live, record = self.a_live()
        kind = self.rng.choices(("text", "config", "interrupt"), (8, 1, 1))[0]
        given = {"live": live, "kind": kind, "payload": b"%d" % self.steps, "boundary": self.rng.random() < 0.3}
        if record and self.rng.random() < 0.5:
            given |= {"through": self.a_pull(record, live), "credit": self.rng.randint(0, 3)}
        if self.rng.random() < 0.5:
            return {**given, "request": self.often(f"r-{self.steps}", lambda: f"r-{self.rng.randint(0, 9)}")}
        producer = self.rng.choice("pppqqr")
        last = record.producers.get(producer, (0, 0))[0] if record else 0
        return {**given, "producer": producer, "n": self.often(last + 1, lambda: self.rng.randint(1, last + 3))}

    def a_pull(self, record: Live, live: str) -> items.Through:
        """The pull that a controller serves, mostly the latest, with what it was passed."""
        worker = self.often(record.selected, self.a_worker, 0.95)
        epoch = self.often(record.epoch, lambda: self.a_number(record), 0.95)
        pull_no = self.often(record.pull_no, lambda: self.rng.randint(0, record.pull_no + 1))
        after = self.ledgers.get(live, Ledger()).handed.get((epoch, pull_no), 0)
        return items.Through(worker, epoch, pull_no, after, items.UNMARKED)

    def release_input(self) -> dict[str, Any]:
        given = self.a_generation()
        record = self.state.lives.get(given["live"])
        right = record.pull_no if record else 1
        pull_no = self.often(right, lambda: self.rng.randint(0, right + 1))
        ledger = self.ledgers.get(given["live"], Ledger())
        after = ledger.handed.get((given["epoch"], pull_no), 0)
        return {**given, "pull_no": pull_no, "after": after, "credit": self.rng.randint(0, 3)}

    def ack_input(self) -> dict[str, Any]:
        """A runtime acks what it got; one more than was released is a bug of its own, which the store refuses."""
        given = self.a_generation()
        record = self.state.lives.get(given["live"])
        got = self.ledgers.get(given["live"], Ledger()).got.get(given["epoch"], 0)
        n = self.often(got, lambda: self.rng.randint(0, got), 0.7)
        if self.rng.random() < 0.05:
            n = (record.released if record else 0) + 1
        written = journal(self.rng, record) if self.rng.random() < 0.3 else None
        return {**given, "n": n, "saved": b"s", "journal": written}

    def emit(self) -> dict[str, Any]:
        given = self.a_generation()
        record = self.state.lives.get(given["live"])
        last = record.emitted[1] if record and record.emitted[0] == given["epoch"] else 0
        n = self.often(last + 1, lambda: self.rng.randint(1, last + 3))
        return {**given, "n": n, "name": "m", "data": b"{}", "told": self.often(last, lambda: self.rng.randint(0, n))}

    def end_live(self) -> dict[str, Any]:
        return {"live": self.a_live()[0], "after_pending": self.rng.random() < 0.3}

    def look(self) -> dict[str, Any]:
        return {"live": self.a_live()[0]}

    def enter(self) -> dict[str, Any]:
        return {"server": self.rng.choice(["s1", "s2"]), "jump": self.rng.randrange(10)}

    def new_term(self) -> dict[str, Any]:
        term = self.state.cell.term
        return {"term": self.often(term, lambda: term - 1)}


SIGHTS: dict[str, Callable[[Live, Live], bool]] = {
    "an item dropped as poison": lambda old, new: new.dropped_poison > old.dropped_poison,
    "a second death over one item": lambda old, new: new.suspect is not None and old.suspect not in (None, new.suspect),
    "a reserved number becoming the epoch": lambda old, new: old.move is not None and new.epoch == old.move.number,
    "a reserved number never used": lambda old, new: old.move is not None and new.epoch > old.move.number,
    "recovered in place": lambda old, new: new.epoch > old.epoch and new.selected == old.selected,
    "back on a Worker it had left": lambda old, new: (
        new.epoch > old.epoch and new.selected != old.selected and new.selected in {row.worker for row in old.history}
    ),
    "ended by its last ack": lambda old, new: (old.state, new.state, new.dropped_end) == ("closing", "ended", 0),
    "a hold turned into a number": lambda old, new: (
        bool(old.move and new.move)
        and (old.move and old.move.hold, bool(new.move and isinstance(new.move.hold, int))) == ("next", True)
    ),
    "an interrupt moving a hold": lambda old, new: (
        bool(old.move and new.move) and new.dropped_interrupt > old.dropped_interrupt
    ),
    "a pull in the middle of what was released": lambda old, new: (
        new.epoch == old.epoch and new.pull_no > old.pull_no and new.active is not None and new.released > new.acked
    ),
    "a waiting live placed": lambda old, new: bool(old.waits) and not new.waits and new.epoch > old.epoch,
    "a waiting live revived": lambda old, new: bool(old.waits) and not new.waits and new.epoch == old.epoch,
    "a live placed above a new floor": lambda old, new: new.epoch > old.epoch + 500,
}


def walk(seed: int) -> set[tuple[str, str]]:
    """One seed from the start; what it met."""
    walker = Walk(seed)
    met = set()
    for _ in range(STEPS_EACH):
        before = walker.state.lives
        name, outcome = walker.step()
        met.add((name, outcome_word(type(outcome))))
        for live, new in walker.state.lives.items():
            if live in before and new is not before[live]:
                met |= {("saw", sight) for sight, seen in SIGHTS.items() if seen(before[live], new)}
    return met
