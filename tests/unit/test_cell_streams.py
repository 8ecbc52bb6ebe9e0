"""Events and changes of several cells: one order, one cursor, nothing lost and nothing twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.access.callers import OPEN
from dhsched.client.models.summary import Overview, WorkerNow
from dhsched.dispatch.cells import streams
from dhsched.dispatch.cells.served import ServedCell
from dhsched.dispatch.cells.streams import Cursors, Streams
from dhsched.dispatch.view.changes import Known, Table
from dhsched.errors import BadValue, StoreUnavailable
from dhsched.store.records.events import Event, Logged

NAMES = ("a", "b", "c")


# -- cursors


def test_a_cursor_has_a_part_for_each_cell_in_their_order() -> None:
    cursors = Cursors(NAMES, "5-1,,7-0")
    assert cursors.at == {"a": "5-1", "b": "", "c": "7-0"} and str(cursors) == "5-1,,7-0"
    cursors.at["b"] = "6-0"
    assert str(cursors) == "5-1,6-0,7-0"
    assert str(Cursors(NAMES, "")) == ",,"
    assert Cursors(NAMES, "1753600000000").at == dict.fromkeys(NAMES, "1753600000000"), "a time counts in every cell"


@pytest.mark.parametrize("text", ["5-0,6-0", "5-0,6-0,7-0,8-0", ","])
def test_a_cursor_of_another_number_of_cells_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=f"{text.count(',') + 1} parts, and there are 3 cells; begin without one"):
        Cursors(NAMES, text)


@given(st.lists(st.sampled_from(["", "1-0", "5d1c09aa.17"]), min_size=2, max_size=5))
def test_a_cursor_is_read_back_as_it_was_written(parts: list[str]) -> None:
    names = [f"c{n}" for n in range(len(parts))]
    assert str(Cursors(names, ",".join(parts))) == ",".join(parts)


# -- events


def at(cursor: str) -> tuple[int, int]:
    ms, _, n = cursor.partition("-")
    return int(ms), int(n or 0)


class Log:
    """The events of one cell, in memory."""

    def __init__(self) -> None:
        self.entries: list[Logged] = []

    def say(self, ms: int, kind: str) -> None:
        number = sum(1 for each in self.entries if each.at_ms == ms)
        self.entries.append(Logged(f"{ms}-{number}", Event(kind, "d1")))

    async def after(self, cursor: str, limit: int) -> list[Logged]:
        return [each for each in self.entries if at(each.id) > at(cursor)][:limit]

    async def last(self, limit: int) -> list[Logged]:
        return self.entries[-limit:]


class Feed:
    """The changes of one cell, with the product's table."""

    def __init__(self, boot: str) -> None:
        self.boot = boot
        self.table = Table()
        self.batched = asyncio.Event()
        self.readers = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1

    async def now(self) -> Table:
        return self.table

    def read(self, *workers: str, rev: int = 1, gone: tuple[str, ...] = ()) -> None:
        """A round has read these Workers."""
        rows = {name: Known(WorkerNow(name, "gpu", "ready", rev, 8, 0, {}), rev, {}) for name in workers}
        self.table.replace(rows, gone)
        self.batched.set()
        self.batched = asyncio.Event()


class Cell:
    """One cell as the streams see it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trouble = ""
        self.reachable = True
        self.log = Log()
        self.feed = Feed(f"0000000{name}")
        self.records = SimpleNamespace(events=self.log)
        self.replica = SimpleNamespace(changes=self.feed)

    async def promptly(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        if not self.reachable:
            raise StoreUnavailable(f"the store of cell {self.name} cannot be reached", unknown=False)
        return await ask()


class World:
    def __init__(self, names: str = "abc") -> None:
        self.cells = {name: Cell(name) for name in names}
        self.streams = Streams([cast(ServedCell, cast(Any, each)) for each in self.cells.values()])

    async def events(self, after: str = "", limit: int = 100) -> Any:
        query = SimpleNamespace(after=after or None, limit=limit)
        return await self.streams.events(cast(Any, SimpleNamespace(query=query, header=lambda name: "")))

    def changes(self, after: str = "", overview: Callable[[], Awaitable[Overview | None]] | None = None) -> Reader:
        asked = SimpleNamespace(service=SimpleNamespace(stopping=False), caller=OPEN)
        return Reader(self.streams._change_rounds(cast(Any, asked), Cursors([*self.cells], after), overview))


def kinds(page: Any) -> list[str]:
    return [each.kind for each in page.events]


async def test_events_of_all_cells_are_in_the_order_of_their_times() -> None:
    world = World("ab")
    for name, ms in (("a", 1), ("b", 2), ("b", 3), ("a", 4), ("a", 5), ("b", 6)):
        world.cells[name].log.say(ms, f"{name}{ms}")
    assert kinds(await world.events("0")) == ["a1", "b2", "b3", "a4", "a5", "b6"]
    latest = await world.events(limit=3)
    assert kinds(latest) == ["a4", "a5", "b6"]
    assert [each.id for each in latest.events] == ["4-0,3-0", "5-0,3-0", "5-0,6-0"] and latest.last == "5-0,6-0"
    assert kinds(await world.events(latest.events[0].id)) == ["a5", "b6"], "each id is a cursor"
    world.cells["a"].log.say(5, "a5 again")  # In the same millisecond as one that was read.
    assert kinds(await world.events(latest.last)) == ["a5 again"]


async def test_without_an_event_there_is_no_cursor() -> None:
    world = World("ab")
    page = await world.events()
    assert (page.events, page.last) == ([], None)


async def test_events_of_a_cell_that_is_away_come_when_it_is_back() -> None:
    world = World("ab")
    for ms in (10, 30):
        world.cells["a"].log.say(ms, f"a{ms}")
    for ms in (5, 20):
        world.cells["b"].log.say(ms, f"b{ms}")
    world.cells["b"].reachable = False
    page = await world.events("0")
    assert (kinds(page), page.cells_left_out) == (["a10", "a30"], ["b"])
    latest = await world.events(limit=2)
    assert kinds(latest) == ["a10", "a30"]
    world.cells["b"].reachable = True
    assert kinds(await world.events(page.last)) == ["b5", "b20"], "none is lost, although they are older"
    assert kinds(await world.events(latest.last)) == ["b20"], "who asked for the latest is not sent all that were ever"
    for each in world.cells.values():
        each.reachable = False
    with pytest.raises(StoreUnavailable, match="no cell can be read: a, b"):
        await world.events()


SAY = st.tuples(st.just("say"), st.integers(0, 2), st.integers(0, 2))
READ = st.tuples(st.just("read"), st.integers(1, 4), st.integers(0, 3))
AWAY = st.tuples(st.just("away"), st.integers(0, 2), st.booleans())


@settings(max_examples=200)
@given(steps=st.lists(st.one_of(SAY, SAY, READ, AWAY), max_size=50))
def test_a_reader_that_resumes_at_any_event_gets_each_once(steps: list[tuple[str, int, int]]) -> None:
    """It reads pages of any length, breaks off inside them, and cells go away and come back meanwhile."""

    async def play() -> None:
        world, ms, cursor = World(), 100, "0"
        said: dict[str, list[str]] = {name: [] for name in NAMES}
        met: list[str] = []

        async def read(limit: int, keep: int) -> int:
            nonlocal cursor
            page = await world.events(cursor, limit)
            times = [each.at_ms for each in page.events]
            assert times == sorted(times) and len(page.events) <= limit
            kept = page.events[:keep]
            met.extend(each.kind for each in kept)
            cursor = kept[-1].id if kept else cursor
            return len(page.events)

        for what, n, more in steps:
            cell = world.cells[NAMES[n % 3]]
            if what == "say":
                ms += more
                said[cell.name].append(f"{cell.name}{len(said[cell.name])}")
                cell.log.say(ms, said[cell.name][-1])
            elif what == "away":
                cell.reachable = not more
            elif any(each.reachable for each in world.cells.values()):
                await read(n, 1 + more)
        for each in world.cells.values():
            each.reachable = True
        while await read(3, 3):
            pass
        for name in NAMES:
            assert [kind for kind in met if kind.startswith(name)] == said[name]

    asyncio.run(play())


# -- changes


class Reader:
    """A reader of the feed of changes."""

    def __init__(self, rounds: AsyncIterator[list[bytes]]) -> None:
        self._rounds = rounds
        self._left: list[bytes] = []

    async def next(self, name: str = "") -> tuple[str, str, Any]:
        """The next event, or the next one with this name: its name, cursor and data."""
        while True:
            while not self._left:
                self._left = [*await asyncio.wait_for(anext(self._rounds), 30)]
            lines = dict(line.split(": ", 1) for line in self._left.pop(0).decode().splitlines() if line)
            if name in ("", lines["event"]):
                return lines["event"], lines.get("id", ""), json.loads(lines["data"])

    async def close(self) -> None:
        await cast(Any, self._rounds).aclose()


def workers_of(data: Any) -> list[str]:
    return sorted(each["worker"] for each in data["workers"])


async def test_a_reader_is_given_the_workers_of_all_cells_and_then_what_changes() -> None:
    world = World("ab")
    world.cells["a"].feed.read("w#1", "w#2")
    world.cells["b"].feed.read("v#1")
    rounds = world.changes()
    event, cursor, data = await rounds.next()
    assert (event, cursor, workers_of(data)) == ("all", "0000000a.0,0000000b.0", ["v#1", "w#1", "w#2"])
    waiting = asyncio.create_task(rounds.next())
    await asyncio.sleep(0)
    world.cells["b"].feed.read("v#1", rev=2)
    assert (await waiting)[:2] == ("changes", "0000000a.0,0000000b.1")
    world.cells["a"].feed.read("w#1", rev=2)
    world.cells["b"].feed.read(gone=("v#1",))
    seen = [await rounds.next() for _ in range(2)]
    assert [cursor for _, cursor, _ in seen] == ["0000000a.1,0000000b.1", "0000000a.1,0000000b.2"]
    assert seen[1][2]["gone"] == ["v#1"]


async def test_a_reader_goes_on_from_its_cursor_and_begins_anew_from_an_unknown_one() -> None:
    world = World("ab")
    for feed in (each.feed for each in world.cells.values()):
        feed.read("w#1")
        for rev in (2, 3):
            feed.read("w#1", rev=rev)
    rounds = world.changes("0000000a.1,0000000b.2")
    event, cursor, data = await rounds.next()
    assert (event, cursor) == ("changes", "0000000a.2,0000000b.2") and data["workers"][0]["load"] == 3
    for unknown in ("0000000a.1,ffffffff.2", "0000000a.9,0000000b.2", "0000000a.2,"):
        event, cursor, data = await world.changes(unknown).next()
        assert (event, cursor, workers_of(data)) == ("all", "0000000a.2,0000000b.2", ["w#1", "w#1"])


async def test_a_cell_that_is_served_later_is_taken_in_and_nothing_stands_still_meanwhile() -> None:
    world = World("ab")
    a, b = world.cells["a"], world.cells["b"]
    b.trouble = "its store was not reached yet"
    a.feed.read("w#1")
    rounds = world.changes()
    assert workers_of((await rounds.next())[2]) == ["w#1"]
    b.trouble = ""  # It is served, and its Workers were not read yet.
    a.feed.read("w#1", rev=2)
    reading = asyncio.create_task(rounds.next("all"))
    for rev in range(3, 6):
        await asyncio.sleep(0)  # The event loop goes on.
        a.feed.read("w#1", rev=rev)
    b.feed.read("v#1")
    event, cursor, data = await reading
    assert (event, cursor, workers_of(data)) == ("all", "0000000a.4,0000000b.0", ["v#1", "w#1"])
    assert (a.feed.readers, b.feed.readers) == (1, 1)
    await rounds.close()
    assert (a.feed.readers, b.feed.readers) == (0, 0)


async def test_a_cell_that_is_away_is_not_waited_for() -> None:
    """Its store was lost before anybody read its Workers."""
    world = World("ab")
    a, b = world.cells["a"], world.cells["b"]
    b.reachable = False
    a.feed.read("w#1")
    rounds = world.changes()
    event, cursor, data = await rounds.next()
    assert (event, cursor, workers_of(data)) == ("all", "0000000a.0,", ["w#1"])
    b.reachable = True
    b.feed.read("v#1")
    event, cursor, data = await rounds.next("all")
    assert (cursor, workers_of(data)) == ("0000000a.0,0000000b.0", ["v#1", "w#1"])


async def test_the_cursor_of_now_leaves_out_a_cell_that_is_away() -> None:
    world = World("ab")
    for each in world.cells.values():
        each.feed.read("w#1", "w#2")
    asked = SimpleNamespace(header=lambda name: "")
    found = await world.streams.changes(cast(Any, asked), cast(Any, None))
    assert (found.cursor, found.workers) == ("0000000a.0,0000000b.0", 4)
    world.cells["a"].reachable = False
    found = await world.streams.changes(cast(Any, asked), cast(Any, None))
    assert (found.cursor, found.workers) == (",0000000b.0", 2)


async def test_the_deployment_is_shown_once_for_each_that_was_made() -> None:
    world = World("ab")
    made = [cast(Overview, cast(Any, {"n": 1}))]

    async def overview() -> Overview | None:
        return made[-1]

    for each in world.cells.values():
        each.feed.read("w#1")
    rounds = world.changes(overview=overview)
    assert [(await rounds.next())[0] for _ in range(2)] == ["all", "summary"]
    world.cells["a"].feed.read("w#1", rev=2)
    assert (await rounds.next())[0] == "changes", "the same is not sent again"
    made.append(cast(Overview, cast(Any, {"n": 2})))
    world.cells["b"].feed.read("w#1", rev=2)
    assert {(await rounds.next())[0] for _ in range(2)} == {"changes", "summary"}


async def test_a_cell_whose_workers_cannot_be_read_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store accepts connections, and answers no read in time: for ever."""
    monkeypatch.setattr(streams, "FIRST_S", 0.01)
    world = World("ab")
    a, b = world.cells["a"], world.cells["b"]
    a.feed.read("w#1")
    rounds = world.changes()
    event, cursor, data = await rounds.next()
    assert (event, cursor, workers_of(data)) == ("all", "0000000a.0,", ["w#1"])
    b.feed.read("v#1")
    event, cursor, data = await rounds.next("all")
    assert (cursor, workers_of(data)) == ("0000000a.0,0000000b.0", ["v#1", "w#1"]), "once they were read"


async def test_cells_that_stand_still_are_asked_for_the_cursor_of_now_at_once() -> None:
    world = World("abc")
    asked_for: list[str] = []
    may_answer = asyncio.Event()
    for name, each in world.cells.items():

        async def slow(_ask: Any, name: str = name) -> Table:
            asked_for.append(name)
            await may_answer.wait()
            raise StoreUnavailable("it did not answer", unknown=True)

        cast(Any, each).promptly = slow
    asking = asyncio.create_task(
        world.streams.changes(cast(Any, SimpleNamespace(header=lambda name: "")), cast(Any, None))
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked_for == ["a", "b", "c"], "not one after another"
    may_answer.set()
    assert (await asking).workers == 0
