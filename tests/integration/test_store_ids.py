"""What the store is given: an id that is none is refused before anything is sent, bytes come back as they went in."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from dhsched.errors import BadId, BadValue
from dhsched.ownership import items
from dhsched.ownership import outcomes as o
from dhsched.ownership.journal import Change
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.store.link.address import Address
from dhsched.store.raw import read_keys
from dhsched.store.steps.api import TEXT_BYTES_MAX, Store
from dhsched.store.steps.redis import RedisStore

EMPTY_OR_LONG = ["", "x" * 65, "x" * 10_000]
CHARACTERS = [
    "a b",
    " a",
    "a\n",
    "a\x00b",
    "\x7f",
    "a{b",
    "a}b",
    "{main}",
    "a@1",
    "a:b",
    "a#1",
    "a*",
    "ä",
    "日本",
    "a\ud800",
]
NOT_IDS = [*EMPTY_OR_LONG, *CHARACTERS, "a/b", ".", "..", None, 7, b"a"]
NOT_OPTIONAL_IDS = [bad for bad in NOT_IDS if bad not in ("", None)]
NOT_LIVES = ["", "a", "/", "a/", "/a", "a/b/c", None, 7, b"t/a", *(f"t/{bad}" for bad in CHARACTERS)]
NOT_LIVES += [f"{bad}/a" for bad in CHARACTERS] + ["t/" + "x" * 10_000, "x" * 10_000 + "/a"]
NOT_WORKERS = ["", "A", "A#", "#1", "A#x", "A#-1", "A#1 ", "A#²", "A#٣", "A#1#2", "A#" + "1" * 10_000, None, 7, b"A#1"]
NOT_WORKERS += [f"{bad}#1" for bad in CHARACTERS] + ["x" * 10_000 + "#1"]
NOT_TAGS = ["", "t/a", "t/a@", "@1", "a@1", "t/a@x", "t/a@-1", "t/a@²", "t/a@٣", "t/a@1 t/b@1", "t/a@" + "1" * 10_000]
NOT_NUMBERS = [-1, 2**50 + 1, 1.0, "1", None, True]

LIMITS = {"starts_create": 1, "starts_recover": 1, "cutovers": 1}
A_CREATE: dict[str, Any] = {"digital_id": "d", "fingerprint": "f", "room": "r"}
GIVEN: dict[str, dict[str, Any]] = {
    "register_worker": {"name": "A", "boot": "b2", "pool": "p", "capacity": 1, "replaces": "A#1"},
    "report": {
        "worker": "A#1",
        "boot": "b",
        "home": "s",
        "term": 0,
        "rev": 0,
        "link": "d",
        "busy": ["t/a@1"],
        **LIMITS,
    },
    "set_worker": {"worker": "A#1", "verb": "cordon"},
    "expire_worker": {"worker": "A#1", "beat": 1},
    "depart": {"worker": "A#1", "live": "t/a", "number": 1, "reason": "returned"},
    "place": {
        "live": "t/a",
        "operation": "o",
        "cause": "reassign",
        "expected": 1,
        "candidates": ["A#1"],
        "pools": ["p"],
        "lives_max": 1,
    },
    "reserve": {"live": "t/a", "expected": 1, "candidates": ["A#1"]},
    "hold": {"live": "t/a", "number": 2},
    "cancel": {"live": "t/a", "number": 2},
    "pull": {"live": "t/a", "worker": "A#1", "epoch": 1, "after": 0, "controller": "c", "mark": b""},
    "append_input": {
        "live": "t/a",
        "kind": "text",
        "payload": b"x",
        "request": "r",
        "mark": items.UNMARKED,
        "credit": 1,
    },
    "release_input": {"live": "t/a", "worker": "A#1", "epoch": 1, "pull_no": 1, "after": 0, "credit": 1, "mark": b""},
    "ack_input": {"live": "t/a", "worker": "A#1", "epoch": 1, "n": 0, "mark": b""},
    "emit": {"live": "t/a", "worker": "A#1", "epoch": 1, "n": 1, "name": "m", "data": b"{}", "told": 0},
    "end_live": {"live": "t/a"},
    "look": {"live": "t/a"},
    "new_term": {"term": 1},
    "enter": {"server": "s", "jump": 5},
}
"""Arguments with which every step would change something or at least be sent."""
BAD: dict[str, list[Any]] = {
    "live": NOT_LIVES,
    "worker": NOT_WORKERS,
    **dict.fromkeys(("name", "boot", "pool", "operation", "controller", "request"), NOT_IDS),
    **dict.fromkeys(("link", "home", "server"), NOT_OPTIONAL_IDS),
    "replaces": [bad for bad in NOT_WORKERS if bad not in ("", None)],
    **dict.fromkeys(
        (
            "capacity",
            "jump",
            "term",
            "rev",
            "beat",
            "number",
            "expected",
            "epoch",
            "after",
            "pull_no",
            "credit",
            "n",
            "lives_max",
            "told",
            *LIMITS,
        ),
        NOT_NUMBERS,
    ),
    "verb": ["", "stop", None, "CORDON"],
    "cause": ["", "fun", None],
    "kind": ["", "noise", None],
    "payload": ["x", None, bytes(TEXT_BYTES_MAX + 1)],
    "data": ["{}", None, b"", b"[]", b"{", b"7", b'{"a": NaN}', b'{"a":"%b"}' % (b"x" * 4_096)],
    "mark": ["00000000", None, b"0", b"0" * 9],
    "candidates": [[bad] for bad in NOT_WORKERS] + [["A#1"] * 17],
    "pools": [[bad] for bad in NOT_IDS] + [["p"] * 17],
    "busy": [[bad] for bad in NOT_TAGS],
    "reason": ["a\nb", "a\x1b[2Jb", " a", "a\u2028b", "a\u202eb", "a\ud800", "x" * 501, "ä" * 251, None, 7, b"a"],
}


@pytest.fixture
async def store(server: Address) -> AsyncIterator[RedisStore]:
    """A store with Worker A#1 and the live t/a on it."""
    async with await RedisStore.open(server) as store:
        await store.register_worker(name="A", boot="b", pool="p", capacity=4)
        await store.report(worker="A#1", boot="b")
        made = await store.place(
            live="t/a", operation="create", cause="create", create=Create(**A_CREATE), candidates=["A#1"]
        )
        assert isinstance(made, o.Committed)
        yield store


def bad_calls() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every step, with each of its arguments in turn as it cannot be."""
    for step, given in GIVEN.items():
        for name in given:
            for bad in BAD[name]:
                yield step, {**given, name: bad}
    stream = {**GIVEN["append_input"], "request": "", "n": 1}
    for bad in NOT_IDS:
        yield "append_input", {**stream, "producer": bad}
    for bad in (0, *NOT_NUMBERS):
        yield "append_input", {**stream, "producer": "p", "n": bad}
    yield "append_input", {**GIVEN["append_input"], "producer": "p", "n": 1}
    through = items.Through("A#1", 1, 1, 1, items.UNMARKED)
    for name in through._fields:
        for bad in BAD[name]:
            yield "append_input", {**GIVEN["append_input"], "through": through._replace(**{name: bad})}
    for name in A_CREATE:
        for bad in NOT_IDS:
            if name != "room" or bad not in ("", None):
                yield "place", create(**{name: bad})
    yield "place", create(metadata="text")
    yield "place", create(config=bytes(TEXT_BYTES_MAX + 1))
    yield "place", create(priority=4)
    yield "place", {**GIVEN["place"], "create": Create(**A_CREATE)}
    yield "register_worker", {**GIVEN["register_worker"], "labels": "a\nb"}
    yield "register_worker", {**GIVEN["register_worker"], "labels": "x" * 1_025}
    yield "ack_input", {**GIVEN["ack_input"], "saved": bytes(65_537)}
    for bad in NOT_NUMBERS:
        yield "ack_input", {**GIVEN["ack_input"], "journal": Change(cast(Any, bad), 1, (b"e",))}
        yield "ack_input", {**GIVEN["ack_input"], "journal": Change(0, cast(Any, bad), (b"e",))}
    for entries in ((b"",), ("e",), (b"e",) * 1_025, (bytes(65_537),), (bytes(65_536),) * 17):
        yield "ack_input", {**GIVEN["ack_input"], "journal": Change(0, 1, cast(Any, entries))}
    yield "emit", {**GIVEN["emit"], "n": 0}


def create(**changes: Any) -> dict[str, Any]:
    made = Create(**{**A_CREATE, **changes})
    return {"live": "t/b", "operation": "o", "cause": "create", "create": made, "candidates": ["A#1"]}


async def test_what_is_no_id_is_refused_before_anything_is_sent(store: RedisStore) -> None:
    before, calls = await read_keys(store.link, store.keys), store.link.calls
    for step, arguments in bad_calls():
        try:
            outcome = await getattr(store, step)(**arguments)
        except (BadId, BadValue) as error:
            assert "\n" not in str(error) and len(str(error)) < 300, f"{step}: {error}"
            continue
        except Exception as error:
            raise AssertionError(f"{step} {arguments!r:.300} raised {error!r}") from error
        raise AssertionError(f"{step} {arguments!r:.300} answered {outcome}")
    assert store.link.calls == calls
    assert await read_keys(store.link, store.keys) == before


def test_every_argument_of_every_step_was_tried() -> None:
    free = {"at_boundary", "after_pending", "boundary", "first", "partly"}  # Only true or false.
    tried = {step: {name for other, given in bad_calls() if other == step for name in given} for step in STEPS}
    flags = {"pull": {"journal"}}
    taken = {step: set(inspect.signature(getattr(Store, step)).parameters) - {"self"} for step in STEPS}
    assert {step: taken[step] - free - flags.get(step, set()) for step in STEPS} == tried


async def test_what_stands_beside_a_bad_argument_is_good(store: RedisStore) -> None:
    """Otherwise the refusals above would say nothing about the argument they are for."""
    for step, arguments in GIVEN.items():
        await getattr(store, step)(**arguments)


ANY_BYTES = [
    *(b"", b"\x00", bytes(range(256)), b"\r\n$5\r\n*3\r\n", b"{main}:@# ", b"I5:abc", b"J9:", b"-ERR", "日本".encode()),
    *(b"1", b"nan", b"\xff\xfe", b"'\"\\", bytes(TEXT_BYTES_MAX)),
]


async def test_bytes_of_any_content_come_back_as_they_went_in(store: RedisStore) -> None:
    for n, blob in enumerate(ANY_BYTES):
        live = f"t/bytes-{n}"
        made = Create(digital_id="d", fingerprint="f", metadata=blob, config=blob)
        await store.place(live=live, operation="c", cause="create", create=made, candidates=["A#1"])
        me: dict[str, Any] = {"live": live, "worker": "A#1", "epoch": 1}
        pulled = await store.pull(**me, after=0, controller="c")
        assert pulled == o.Pulling(1, 0, "d", "", metadata=blob, config=blob, saved=b"")
        await store.append_input(live=live, kind="config", payload=blob[::-1], request="1")
        await store.append_input(live=live, kind="text", payload=blob, request="2", boundary=True)
        handed = await store.release_input(**me, pull_no=1, after=0, credit=9)
        assert isinstance(handed, o.Items)
        assert [items.read(item) for item in handed.items] == [
            items.Item("config", blob[::-1], boundary=False, config=blob[::-1]),
            items.Item("text", blob, boundary=True),
        ]
        await store.append_input(live=live, kind="interrupt", payload=blob, request="3")
        handed = await store.release_input(**me, pull_no=1, after=2, credit=9)
        assert isinstance(handed, o.Items)
        assert [items.read(item) for item in handed.items] == [items.Item("interrupt", blob, True, blob[::-1])]
        await store.ack_input(**me, n=3, saved=blob[:4_096])
        assert await store.pull(**me, after=3, controller="c") == o.Pulling(
            2, 3, "d", "", metadata=blob, config=blob[::-1], saved=blob[:4_096]
        )
        await store.end_live(live=live)
        await store.depart(worker="A#1", live=live, number=1)
