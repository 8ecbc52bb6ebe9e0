"""Random operations on a small cell: mostly what its actors would do next, and everything that goes wrong as well.

`draw` looks at the model's state and picks one operation: a plausible one, a stale or misdirected one, or one that was
sent before (a retry, a duplicate, a message from a week ago). All choices come from the `Random` it is given, so that
Hypothesis can shrink a failure and a seed can repeat one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from dhsched.ownership.items import mark_of
from dhsched.ownership.journal import Change
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import Live, State
from dhsched.ownership.steps.enter import JUMP_MIN
from dhsched.ownership.steps.place import Create
from dhsched.types import NUMBER_MAX, Equals, split_tag

LIMITS = Limits(
    claim_wait_ms=10,
    ack_wait_ms=10,
    lease_ms=5,
    backoff_max_ms=40,
    ended_ttl_ms=30,
    move_expires_ms=25,
    reap_ms=20,
    recent_min=2,
    recent_ms=10,
    recent_max=4,
    producers_max=2,
    pending_max=4,
    cutovers_max=1,
    starts_create_max=2,
    starts_recover_max=1,
    history_max=2,
    journal_entries_max=5,
    journal_bytes_max=12,
    dead_max=2,
    boots_max=3,
    boots_window_ms=100,
    walk_max=2,
    start_wait_max_ms=20,
    term_step=16,
    emits_max=3,
    emits_bytes_max=60,
)
"""Small enough that every limit is met within a few steps."""
LIVES = ("t/a", "t/b", "u/a")
POOLS = ("p", "q")
MARKS = (b"00000001", b"00000002")
REASONS = ("", "returned", "RuntimeError: 2 of 3 weights @ ü")


class Operation(NamedTuple):
    name: str
    arguments: dict[str, Any]


def draw(r: Random, s: State, sent: Sequence[Operation]) -> Operation:
    """The next operation on a cell in state `s` to which `sent` was sent before."""
    if len(s.workers) < 2 and r.random() < 0.8:
        return Operation("register_worker", register_worker(r, s))
    unheard = [w for w, record in s.workers.items() if record.beat == 0 and not record.gone]
    if unheard and r.random() < 0.7:
        return Operation("report", report(r, s, r.choice(unheard)))
    if sent and r.random() < 0.12:
        return r.choice(sent)
    name = r.choices(NAMES, WEIGHTS)[0]
    return Operation(name, MAKERS[name](r, s))


def worker(r: Random, s: State) -> str:
    return r.choice([*s.workers]) if s.workers else "x#1"


def candidate(r: Random, s: State) -> str | Equals:
    """A Worker, or several of a Pool; some of them may be elsewhere."""
    if r.random() < 0.5:
        return worker(r, s)
    return Equals(r.choice(POOLS), tuple(worker(r, s) for _ in range(r.randrange(1, 4))))


def live(r: Random, s: State) -> tuple[str, Live | None]:
    name = r.choice([*s.lives]) if s.lives and r.random() < 0.9 else r.choice(LIVES)
    return name, s.lives.get(name)


def owner(r: Random, s: State) -> tuple[str, Live | None, str, int]:
    """A live and who it would obey; one time in five somebody else."""
    name, record = live(r, s)
    if record is None or r.random() < 0.2:
        return name, record, worker(r, s), r.choice([1, record.epoch if record else 2, r.randrange(1, 20)])
    return name, record, record.selected, record.epoch


def register_worker(r: Random, s: State) -> dict[str, Any]:
    return {
        "name": r.choice("AB"),
        "boot": f"b{r.randrange(12)}",
        "pool": r.choice(POOLS),
        "capacity": r.choice([1, 2, 3]),
        "labels": r.choice(["", "zone=1"]),
        "replaces": worker(r, s) if r.random() < 0.2 else "",
    }


def report(r: Random, s: State, who: str | None = None) -> dict[str, Any]:
    who = who or worker(r, s)
    record = s.workers.get(who)
    ahead = r.random() < 0.03
    return {
        "worker": who,
        "boot": record.boot if record and r.random() < 0.95 else "nobody",
        "home": "" if r.random() < 0.2 else s.cell.home,
        "term": s.cell.term + 1 if ahead else r.choice([0, s.cell.term, s.cell.term]),
        "rev": r.choice([0, record.slots_rev, r.randint(0, record.slots_rev)]) if record else 0,
        "busy": [*s.slots.get(who, {})] if r.random() < 0.3 else [],
        "partly": r.random() < 0.5,
        "link": r.choice(["", "d1"]),
        "starts_create": r.choice([0, 0, 0, 1, 3]),
        "starts_recover": r.choice([0, 0, 0, 2]),
        "cutovers": r.choice([0, 0, 0, 2]),
    }


def set_worker(r: Random, s: State) -> dict[str, Any]:
    return {
        "worker": worker(r, s),
        "verb": r.choice(["cordon", "uncordon", "uncordon", "drain", "undrain", "undrain", "exit", "reap"]),
    }


def expire_worker(r: Random, s: State) -> dict[str, Any]:
    who = worker(r, s)
    beat = s.workers[who].beat if who in s.workers else 0
    return {"worker": who, "beat": beat if r.random() < 0.8 else beat + 1}


def depart(r: Random, s: State) -> dict[str, Any]:
    who = worker(r, s)
    tags = [*s.slots.get(who, {})]
    if tags and r.random() < 0.9:
        name, number = split_tag(r.choice(tags))
    else:
        name, number = r.choice(LIVES), r.randrange(1, 5)
    return {"worker": who, "live": name, "number": number, "reason": REASONS[number % len(REASONS)]}


def place(r: Random, s: State) -> dict[str, Any]:
    name = r.choice(LIVES)
    record = s.lives.get(name)
    arguments: dict[str, Any] = {
        "live": name,
        "operation": f"o{r.randrange(3000)}",
        "candidates": [candidate(r, s) for _ in range(r.randrange(3))],
        "pools": r.choice([(), ("p",), ("p", "q"), ("q", "p")]),
    }
    if record is None or r.random() < 0.05:
        create = Create(
            digital_id="d",
            fingerprint=r.choice(["f", "f", "g"]),
            priority=r.randrange(2),
            immovable=r.random() < 0.5,
            room=r.choice(["", "r"]),
            metadata=r.choice([b"", b"m"]),
            config=r.choice([b"", b"c"]),
        )
        # Some lives have a lifetime, by what was drawn anyway.
        idle_ms, max_ms = 40 * bool(create.room and create.metadata), 120 * bool(create.config and create.metadata)
        create = replace(create, idle_ms=idle_ms, max_ms=max_ms, labels=create.metadata and b"zone=1 tier=2")
        return {**arguments, "cause": "create", "create": create, "lives_max": r.choice([0, 0, 0, 2, 4])}
    return {
        **arguments,
        "cause": r.choice(["reassign", "recover", "recover", "recover", "drain", "rebalance"]),
        "expected": record.epoch if r.random() < 0.85 else r.randrange(20),
        "at_boundary": r.random() < 0.3,
    }


def reserve(r: Random, s: State) -> dict[str, Any]:
    name, record = live(r, s)
    expected = record.epoch if record and r.random() < 0.9 else 1
    return {"live": name, "expected": expected, "candidates": [candidate(r, s) for _ in range(2)]}


def of_move(r: Random, s: State) -> dict[str, Any]:
    moving = [name for name, record in s.lives.items() if record.move]
    name = r.choice(moving) if moving and r.random() < 0.9 else r.choice(LIVES)
    record = s.lives.get(name)
    number = record.move.number if record and record.move and r.random() < 0.9 else r.randrange(1, 5)
    return {"live": name, "number": number}


def pull(r: Random, s: State) -> dict[str, Any]:
    name, record, who, epoch = owner(r, s)
    after = r.choice([0, record.acked, record.released, record.released + 1]) if record else 0
    arguments = {"live": name, "worker": who, "epoch": epoch, "after": after, "controller": r.choice(["c1", "c2"])}
    return {**arguments, "mark": mark(r, record, after)}


def mark(r: Random, record: Live | None, n: int) -> bytes:
    """The mark of item n, as somebody has it who was handed it; now and then of another history."""
    if record is None or r.random() < 0.05:
        return r.choice((*MARKS, b""))
    if n > record.acked:
        return mark_of(record.pending[n - record.acked - 1]) if n <= record.appended else r.choice(MARKS)
    return record.acked_mark


def append_input(r: Random, s: State) -> dict[str, Any]:
    name, record = live(r, s)
    arguments = {
        "live": name,
        "kind": r.choices(["text", "config", "interrupt"], [7, 2, 1])[0],
        "payload": r.choice([b"", b"hello", b"\x00{}:@ "]),
        "boundary": r.random() < 0.4,
        "mark": r.choices(MARKS, [9, 1])[0],
    }
    if r.random() < 0.5:
        return {**arguments, "request": f"r{r.randrange(30)}"}
    producer = r.choice(["s1", "s2", "s3"])
    last = record.producers.get(producer, (0, 0, 0))[0] if record else 0
    return {**arguments, "producer": producer, "n": max(1, last + r.choice([1, 1, 1, 1, 0, 2]))}


def release_input(r: Random, s: State) -> dict[str, Any]:
    name, record, who, epoch = owner(r, s)
    pull_no = record.pull_no if record and r.random() < 0.9 else r.randrange(3)
    after = r.choice([0, 0, record.acked, record.released, record.released + 1]) if record else 0
    credit = r.choice([1, 3])
    arguments = {"live": name, "worker": who, "epoch": epoch, "pull_no": pull_no, "after": after, "credit": credit}
    return {**arguments, "mark": mark(r, record, after)}


def ack_input(r: Random, s: State) -> dict[str, Any]:
    name, record, who, epoch = owner(r, s)
    n = r.choice([record.acked, record.released, record.acked + 1, record.released + 1]) if record else 1
    arguments = {"live": name, "worker": who, "epoch": epoch, "n": n, "saved": r.choice([None, b"", b"memory"])}
    return {**arguments, "mark": mark(r, record, n), "journal": journal(r, record) if r.random() < 0.4 else None}


def journal(r: Random, record: Live | None) -> Change:
    """A change of the journal: mostly one that goes on where the journal ends, or repeats a part of it."""
    last = record.journal.last if record else 0
    first = max(1, last + r.choice([1, 1, 1, 0, -1, 2, 4]))
    drop = r.choice([0, 0, 0, last, max(0, last - 1), first - 1])
    entries = [b"%d" % number * r.choice([1, 1, 1, 3]) for number in range(first, first + r.randrange(4))]
    return Change(drop, first, tuple(entries))


def emit(r: Random, s: State) -> dict[str, Any]:
    name, record, who, epoch = owner(r, s)
    last = record.emitted[1] if record and record.emitted[0] == epoch else 0
    n = max(1, last + r.choice([1, 1, 1, 1, 0, 2, 3]))
    told = r.choice([0, 0, last, n - 1, n])
    arguments = {"live": name, "worker": who, "epoch": epoch, "n": n, "told": told}
    return {
        **arguments,
        "name": r.choice(["m", "spoken"]),
        "data": r.choice([b"{}", b'{"a": 1}', b'{"a":"%b"}' % (b"x" * 40)]),
    }


def end_live(r: Random, s: State) -> dict[str, Any]:
    return {"live": live(r, s)[0], "after_pending": r.random() < 0.7}


def look(r: Random, s: State) -> dict[str, Any]:
    return {"live": live(r, s)[0]}


def new_term(r: Random, s: State) -> dict[str, Any]:
    term = s.cell.term
    return {"term": r.choice([term, term, max(1, term - 1)])}


def enter(r: Random, s: State) -> dict[str, Any]:
    """The server was promoted, or only the connection is new."""
    server = r.choice(["s1", "s2", "none", s.cell.home or "s1"])
    if s.cell.rev > NUMBER_MAX - 2 * JUMP_MIN:
        server = s.cell.home  # One more home would not fit.
    return {"server": server, "jump": r.randrange(32, 64), "first": r.random() < 0.2}


Maker = Callable[[Random, State], dict[str, Any]]
WEIGHTED: dict[str, tuple[int, Maker]] = {
    "register_worker": (2, register_worker),
    "report": (4, report),
    "set_worker": (3, set_worker),
    "expire_worker": (2, expire_worker),
    "depart": (5, depart),
    "place": (14, place),
    "reserve": (5, reserve),
    "hold": (4, of_move),
    "cancel": (1, of_move),
    "pull": (10, pull),
    "append_input": (12, append_input),
    "release_input": (12, release_input),
    "ack_input": (10, ack_input),
    "emit": (6, emit),
    "end_live": (2, end_live),
    "look": (12, look),
    "new_term": (1, new_term),
    "enter": (1, enter),
}
NAMES = [*WEIGHTED]
WEIGHTS = [weight for weight, _ in WEIGHTED.values()]
MAKERS = {name: maker for name, (_, maker) in WEIGHTED.items()}
