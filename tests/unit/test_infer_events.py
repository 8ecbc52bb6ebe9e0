"""What a watcher is told, from two looks at a record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from dhsched.access.callers import OPEN
from dhsched.errors import StoreUnavailable
from dhsched.infer import events
from dhsched.infer.context import InferContext
from dhsched.infer.events import Observed, changes, read_id, readings
from dhsched.ownership.state import Row
from dhsched.store.records.lives import Message, Progress, ViewerItem
from dhsched.web.server import CALLER


def names(before: Observed, now: Observed) -> list[str]:
    return [event for event, _ in changes(before, now)]


def test_a_late_watcher_is_told_where_the_live_stands() -> None:
    now = Observed(epoch=2, worker="w#1", cause="create", claimed=True, released=5, acked=3)
    assert names(Observed(), now) == ["committed", "claimed", "released", "acked"]


def test_nothing_changed_says_nothing() -> None:
    look = Observed(epoch=2, worker="w#1", claimed=True, released=5, acked=3, dropped_interrupt=1)
    assert names(look, look) == []


def test_generations_in_between_are_told() -> None:
    before = Observed(epoch=1, worker="a#1", claimed=True)
    row = Row(2, "b#1", "reassign", "op", committed_at=5, claimed_at=6)
    now = Observed(epoch=3, worker="a#1", cause="recover", stalled=False, past=(row,))
    found = list(changes(before, now))
    assert [(event, data["epoch"]) for event, data in found] == [("committed", 2), ("claimed", 2), ("committed", 3)]
    assert found[2][1]["cause"] == "recover"


def test_dropped_has_its_cause_and_its_count() -> None:
    before = Observed(epoch=1, claimed=True, acked=1, released=1)
    now = Observed(epoch=1, claimed=True, acked=6, released=6, dropped_interrupt=4, dropped_poison=1)
    found = [data for event, data in changes(before, now) if event == "dropped"]
    assert [(data["cause"], data["items"]) for data in found] == [("interrupt", 4), ("poison", 1)]


def test_who_said_an_item_is_told_before_it_is_released() -> None:
    before = Observed(epoch=1, claimed=True, released=1)
    now = Observed(epoch=1, claimed=True, released=2, said=(ViewerItem("Zoë", "text", 2),))
    assert names(before, now) == ["said", "released"]
    assert next(changes(before, now))[1] == {"identity": "Zoë", "kind": "text", "seq": 2}


def test_stalled_and_ended() -> None:
    before = Observed(epoch=1, claimed=True)
    assert names(before, Observed(epoch=1, claimed=True, stalled=True)) == ["stalled"]
    ended = Observed(epoch=1, state="ended", acked=4, released=4, dropped_end=4)
    assert names(before, ended) == ["dropped", "ended"]


class Controller:
    """What `watch_live` uses of a controller. `found` has the readings of the live, the last one again and again."""

    def __init__(self, *found: Progress | Exception | None) -> None:
        self.found = [*found]
        self.asked: list[str] = []
        self.counted: list[str] = []
        self.messages: list[Message] = []
        self.said: list[tuple[str, ViewerItem]] = []
        self.history: tuple[Row, ...] = ()
        self.woken = asyncio.Event()
        self.stopping = False

    async def progress(self, live: str) -> Progress | None:
        self.asked.append(live)
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def said_after(self, live: str, cursor: str) -> list[tuple[str, ViewerItem]]:
        return [each for each in self.said if each[0] > cursor]

    async def emits_after(self, live: str, seen: tuple[int, int]) -> list[Message]:
        return [each for each in self.messages if each[:2] > seen]

    async def get(self, live: str) -> Any:
        return SimpleNamespace(history=self.history)

    @contextmanager
    def open_stream(self, tenant: str) -> Iterator[None]:
        self.counted.append(tenant)
        yield

    @contextmanager
    def watch(self, live: str) -> Iterator[asyncio.Event]:
        yield self.woken

    @property
    def context(self) -> InferContext:
        made: Any = SimpleNamespace(
            records=SimpleNamespace(lives=self),
            connections=self,
            emits=self,
            settings=SimpleNamespace(watch_s=0.0),
            service=self,
            of=lambda live: made,
        )
        return cast(InferContext, made)

    async def events(self) -> list[str]:
        """Return the names of all events, until the stream ends."""
        first = await events.read(self.context, "t/a", Observed())
        assert first is not None
        told = [text async for texts in readings(self.context, "a", "t/a", first) for text in texts]
        return [text.split(b"event: ")[1].split(b"\n")[0].decode() for text in told]


def progress(**more: Any) -> Progress:
    given = {field: getattr(Observed(), field) for field in Progress._fields}
    return Progress(**{**given, "epoch": 1, "worker": "w#1", "claimed": True, **more})


async def test_a_watcher_sees_lives_of_its_own_tenant_whatever_it_asks_for() -> None:
    controller = Controller(None)
    [route] = events.routes(controller.context)
    query = "?tenant=other&live_id=b&live=other%2Fb"
    request = make_mocked_request("GET", f"/v1/lives/a/events{query}", match_info={"live_id": "a"})
    request[CALLER] = replace(OPEN, tenant="mine")
    answer = await cast(Any, route.handler)(request)
    assert isinstance(answer, web.Response) and answer.status == 404
    assert controller.asked == ["mine/a"] and controller.counted == ["mine"]


async def test_a_stream_goes_on_until_the_live_has_ended() -> None:
    controller = Controller(progress(), progress(released=1), progress(released=1, acked=1), progress(state="ended"))
    assert await controller.events() == ["committed", "claimed", "released", "acked", "ended"]


async def test_a_live_whose_record_is_gone_has_ended_and_a_store_that_is_away_changes_nothing() -> None:
    controller = Controller(progress(), StoreUnavailable("away", unknown=False), progress(released=1), None)
    controller.said = [("1-0", ViewerItem("Zoë", "text", 1))]
    controller.messages = [Message(1, 1, "spoken", b"{}")]
    controller.found[0] = progress(emitted=(1, 1))
    assert await controller.events() == ["committed", "claimed", "said", "emitted", "released", "ended"]


async def test_a_stream_ends_when_its_controller_stops() -> None:
    controller = Controller(progress())
    controller.stopping = True
    assert await controller.events() == ["committed", "claimed"]


async def test_generations_between_two_readings_are_read_from_the_history() -> None:
    rows = [Row(epoch, "b#1", "reassign", "op", committed_at=5, claimed_at=0) for epoch in (1, 2, 3)]
    controller = Controller(progress(), progress(epoch=3), progress(epoch=3, state="ended"))
    controller.history = tuple(rows)
    assert await controller.events() == ["committed", "claimed", "committed", "committed", "claimed", "ended"]


async def test_messages_are_sent_once_also_when_the_store_has_lost_the_last_ones() -> None:
    controller = Controller()
    controller.messages = [Message(1, n, "m", b'{"n": 1}') for n in (1, 2)]
    ended = progress(emitted=(1, 2), state="ended")
    controller.found = [progress(emitted=(1, 2)), progress(emitted=(1, 1)), progress(emitted=(1, 2)), ended]
    assert (await controller.events()).count("emitted") == 2


@pytest.mark.parametrize(
    "text, seen", [("3.14", (3, 14)), ("", (0, 0)), ("3", (0, 0)), ("3.x", (0, 0)), ("1" * 17 + ".1", (0, 0))]
)
def test_the_last_message_that_a_watcher_has_seen(text: str, seen: tuple[int, int]) -> None:
    assert read_id(text) == seen


def test_only_messages_have_an_id() -> None:
    assert events.encoded("emitted", {"epoch": 2, "n": 7}).startswith(b"id: 2.7\nevent: emitted\ndata: {")
    assert events.encoded("acked", {"epoch": 2, "acked": 7}).startswith(b"event: acked\n")
