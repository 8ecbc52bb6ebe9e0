"""The whole state of a cell, decoded from its raw keys: for conformance tests, and to recount slots.

The keys are read one after the other, so the result is one consistent moment only if nothing else writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from dhsched.ownership.state import Cell, Cursors, Hold, Journal, Live, Move, Row, State, Worker, frozen
from dhsched.store.keys import Keys
from dhsched.store.link.link import Link
from dhsched.store.link.wire import Arg
from dhsched.store.record import Fields, read_record
from dhsched.store.steps.replies import home_of
from dhsched.types import Cause, LifetimeReason, LiveState, Mode, SlotState

AT_ONCE = 500  # Commands that are sent before their answers are waited for.
CALL_S = 30.0  # A command that the store does not answer for this long ends the reading with an error.
READ: dict[bytes, tuple[str | int, ...]] = {
    b"hash": ("HGETALL",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"list": ("LRANGE", 0, -1),
    b"string": ("GET",),
}
WORDS = ("digital_id", "room", "fingerprint", "selected", "controller")
NUMBERS = (
    *("priority", "epoch", "issued", "pull_no", "appended", "released", "acked"),
    *("dropped_interrupt", "dropped_end", "dropped_poison", "config_next", "saved_seq", "starts", "tries", "ended_at"),
    *("created_at", "idle_ms", "max_ms"),
)
"""Fields of a live's record that are stored as plain text or numbers; an absent field is empty, or 0."""


async def read_state(link: Link, cell: str) -> State:
    """Return everything under the cell's prefix as a State."""
    return decode(await read_keys(link, Keys(cell)))


async def read_keys(link: Link, keys: Keys) -> dict[str, Any]:
    """Return every key under the cell's prefix, without that prefix, with its plain value."""
    names = await scan_keys(link, keys)
    kinds = await in_turn(link, [("TYPE", keys.prefix + name) for name in names])
    readable = [(name, READ[kind]) for name, kind in zip(names, kinds, strict=True) if kind in READ]
    values = await in_turn(link, [(command[0], keys.prefix + name, *command[1:]) for name, command in readable])
    # A key without a value was deleted between the two calls.
    return {name: value for (name, _), value in zip(readable, values, strict=True) if value}


async def scan_keys(link: Link, keys: Keys) -> list[str]:
    """Return the name of every key of the cell, without the cell's prefix."""
    cursor, found = b"0", set[str]()
    while True:
        match = keys.prefix.replace("{", "\\{") + "*"
        cursor, page = await link.call("SCAN", cursor, "MATCH", match, "COUNT", 1000, deadline_s=CALL_S)
        found.update(key.decode()[len(keys.prefix) :] for key in page)
        if int(cursor) == 0:
            return sorted(found)


async def in_turn(link: Link, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
    """Run commands, some at once, and return their answers in order."""
    answers: list[Any] = []
    for start in range(0, len(commands), AT_ONCE):
        calls = [link.call(*command, deadline_s=CALL_S) for command in commands[start : start + AT_ONCE]]
        answers += await asyncio.gather(*calls)
    return answers


def decode(raw: Mapping[str, Any]) -> State:
    """Decode keys and values, as `read_keys` returns them, to a State."""
    of: dict[str, dict[str, Any]] = {}
    for key, value in raw.items():
        kind, _, name = key.partition(":")
        of.setdefault(kind, {})[name] = value

    def get(kind: str) -> dict[str, Any]:
        return of.get(kind, {})

    return State(
        cell=decode_cell(hash_of(get("cell").get("", {})), get("homes").get("", [])),
        lives=frozen({live: decode_live(live, hash_of(value), of) for live, value in get("live").items()}),
        workers=frozen({worker: decode_worker(hash_of(value)) for worker, value in get("worker").items()}),
        changed=frozen({w: int(rev) for w, rev in scores(get("workers").get("", [])).items()}),
        slots=frozen({w: frozen(slots_of(value)) for w, value in get("slots").items()}),
        slot_revs=frozen({w: frozen({k: int(v) for k, v in scores(a).items()}) for w, a in get("slot_revs").items()}),
        free=frozen({pool: frozen(scores(value)) for pool, value in get("free").items()}),
        waiting=frozen({pool: frozen(scores(value)) for pool, value in get("waiting").items()}),
        agenda=frozen({int(c): frozen({k: int(v) for k, v in scores(a).items()}) for c, a in get("agenda").items()}),
        boots=frozen({boot: worker.decode() for boot, worker in hash_of(get("boots").get("", {})).items()}),
        blame=frozen({n: (int(f["since"]), int(f["boots"])) for n, v in get("blame").items() if (f := hash_of(v))}),
        listed=frozenset(scores(get("lives").get("", []))),
        ended=frozenset(scores(get("ended").get("", []))),
    )


def is_stalled(epoch: str, acked: str, stalled: str) -> bool:
    """Return whether a live is stalled: `stalled` names the cursors that its record has now."""
    return stalled == f"{epoch} {acked or 0}"


def pair_of(stored: str) -> tuple[int, int]:
    """Return the first two numbers of a field; zeros if it is not set."""
    first, second, *_ = stored.split() or ("0", "0")
    return int(first), int(second)


def hash_of(value: Any) -> dict[str, bytes]:
    pairs = value.items() if isinstance(value, dict) else zip(value[::2], value[1::2], strict=True)
    return {field.decode(): held for field, held in pairs}


def scores(value: Any) -> dict[str, float]:
    """Return a zset's scores by member, whether the reply has pairs (RESP3) or is flat."""
    if value and not isinstance(value[0], list):
        value = list(zip(value[::2], value[1::2], strict=True))
    return {member.decode(): float(score) for member, score in value}


def slots_of(value: Any) -> dict[str, SlotState]:
    return {tag: cast(SlotState, state.decode()) for tag, state in hash_of(value).items()}


def decode_cell(f: Fields, homes: Sequence[bytes]) -> Cell:
    return Cell(
        term=int(f.get("term", 1)),
        epoch_base=int(f.get("epoch_base", 0)),
        epoch_floor=int(f.get("epoch_floor", 0)),
        rev=int(f.get("rev", 0)),
        placed=int(f.get("placed", 0)),
        workers_issued=int(f.get("workers_issued", 0)),
        pos=int(f.get("pos", 0)),
        pull_base=int(f.get("pull_base", 0)),
        homes=tuple(map(home_of, homes)),
    )


def decode_worker(f: Fields) -> Worker:
    return Worker(
        name=f["name"].decode(),
        boot=f["boot"].decode(),
        pool=f["pool"].decode(),
        capacity=int(f["capacity"]),
        labels=f["labels"].decode(),
        mode=cast(Mode, f["mode"].decode()),
        lost=f.get("lost") == b"1",
        lost_at=int(f.get("lost_at", 0)),
        gone=f.get("gone") == b"1",
        beat=int(f.get("beat", 0)),
        load=int(f.get("load", 0)),
        starting=int(f.get("starting", 0)),
        cutovers=int(f.get("cutovers", 0)),
        slots_rev=int(f.get("slots_rev", 0)),
        link=f.get("link", b"").decode(),
        starts_create_max=int(f.get("starts_create_max", 0)),
        starts_recover_max=int(f.get("starts_recover_max", 0)),
        cutovers_max=int(f.get("cutovers_max", 0)),
        pace=int(f.get("pace", 1)),
    )


def decode_live(live: str, f: Fields, of: Mapping[str, Mapping[str, Any]]) -> Live:
    f = read_record(f)
    data = hash_of(of.get("data", {}).get(live, {}))
    producers = {field[5:]: value.split() for field, value in f.items() if field.startswith("from:")}
    whole = {field: int(f.get(field, 0)) for field in NUMBERS}
    words = {field: f.get(field, b"").decode() for field in WORDS}
    note = [int(part) for part in f.get("note", b"").split()]
    suspect = [int(part) for part in f.get("suspect", b"").split(b":") if part]
    stalled = [int(part) for part in f.get("stalled", b"").split()]
    return Live(
        **cast(Any, whole),
        **cast(Any, words),
        immovable=f.get("immovable") == b"1",
        acked_mark=f.get("acked_mark", b""),
        forgot=f.get("forgot") == b"1",
        at_boundary=f.get("at_boundary") == b"1",
        active=None if "unclaimed" in f else f["selected"].decode(),
        state=cast(LiveState, f["state"].decode()),
        current=decode_row(
            [f[name] for name in ("epoch", "selected", "cause", "operation", "committed_at")]
            + [f.get("claimed_at", b"0"), f.get("first_ack_at", b"0"), data.get("reason", b"")]
        ),
        metadata=data.get("metadata", b""),
        config=data.get("config", b""),
        labels=data.get("labels", b""),
        fallback=data.get("fallback"),
        saved=data.get("saved", b""),
        journal=Journal(int(data.get("journal_last", 0)), tuple(of.get("journal", {}).get(live, []))),
        pending=tuple(of.get("input", {}).get(live, [])),
        move=decode_move(f),
        note=(Cursors(*note[:2]), note[2]) if note else None,
        stalled=Cursors(*stalled) if stalled else None,
        seen=pair_of(f.get("seen", b"").decode()),
        expired=cast(LifetimeReason, f["expired"].decode()) if "expired" in f else None,
        suspect=(suspect[0], suspect[1]) if suspect else None,
        blamed=tuple(f.get("blamed", b"").decode().split()),
        waits=tuple(f.get("waits", b"").decode().split()),
        history=tuple(decode_row(row.split(b" ", 7)) for row in of.get("history", {}).get(live, b"").splitlines()),
        producers=frozen({p: (int(v[0]), int(v[1]), int(v[2])) for p, v in producers.items()}),
        recent=frozen({r: int(at) for r, at in scores(of.get("recent", {}).get(live, [])).items()}),
        dead=tuple(of.get("dead", {}).get(live, [])),
        interrupted=pair_of(f.get("interrupted", b"").decode()),
        emitted=pair_of(f.get("emitted", b"").decode()),
        emits=tuple(of.get("emits", {}).get(live, [])),
    )


def decode_move(f: Fields) -> Move | None:
    if "move_target" not in f:
        return None
    stored = f.get("hold")
    hold: Hold = None if stored is None else "next" if stored == b"next" else int(stored)
    return Move(f["move_target"].decode(), int(f["move_number"]), int(f["move_expires"]), hold)


def decode_row(row: list[bytes]) -> Row:
    epoch, worker, cause, operation, committed, claimed, first_ack, *reason = row
    return Row(
        int(epoch),
        worker.decode(),
        cast(Cause, cause.decode()),
        operation.decode(),
        int(committed),
        int(claimed),
        int(first_ack),
        b"".join(reason).decode(),
    )
