"""A stream of pushes on scripted connections: what is sent again, under which name, and what ends the stream.

A store that has lost items that it had answered gets what is kept again; the rest is counted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import msgspec
import pytest
from yarl import URL

from dhsched.client import stream as streams
from dhsched.client.models.input import Answer, Pushed, PushText
from dhsched.client.producers import Producers
from dhsched.client.stream import Stream, frames_of
from dhsched.errors import BadValue, NotMinted, Refused, Unreachable
from dhsched.links.messages import PUSH_FRAME_BYTES_MAX, PUSHES_MAX
from tests.harness.linking import eventually


async def answered(count: int) -> Stream:
    """A stream with `count` items that were answered, and one more that was not."""
    stream = Stream(cast(Any, None), "a", Producers(), in_flight_max=100, deadline_s=1)
    for n in range(count + 1):
        await stream.send(f"item {n + 1}")
    await stream._hear(Answer("a", n=count, seq=count))
    return stream


def gap(n: int, last: int) -> Answer:
    return Answer("a", n=n, problem={"code": "GAP", "status": 409, "last": last, "detail": "send again"})


def owed(stream: Stream) -> list[tuple[int, str]]:
    return [(item.push.n, item.push.text) for item in stream._unanswered]


async def test_what_the_store_lost_goes_first_again_under_its_numbers() -> None:
    stream = await answered(4)
    name = stream._producer.name
    assert not await stream._hear(gap(5, last=2))
    assert owed(stream) == [(3, "item 3"), (4, "item 4"), (5, "item 5")]
    assert stream.lost == 0 and stream._producer.name == name
    assert await stream._hear(Answer("a", n=5, seq=5)) and owed(stream) == []


async def test_what_is_not_kept_any_more_is_counted_and_the_rest_has_new_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "KEPT_MAX", 2)
    stream = await answered(5)
    name = stream._producer.name
    assert not await stream._hear(gap(6, last=1))
    assert stream.lost == 2
    assert stream._producer.name != name
    assert owed(stream) == [(1, "item 4"), (2, "item 5"), (3, "item 6")]
    await stream.send("item 7")
    assert owed(stream)[-1] == (4, "item 7")


async def test_a_gap_behind_what_is_on_its_way_is_no_loss() -> None:
    stream = await answered(4)
    assert not stream._takes_back(4) and owed(stream) == [(5, "item 5")]


async def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEPT_BYTES_MAX", 100)
    stream = await answered(50)
    assert 0 < stream._kept_bytes <= 100 and len(stream._kept) < 10


class Socket:
    """A connection of a stream. It stays until the test ends it; `sent` has what the stream has sent on it."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.sent: list[dict[str, Any]] = []
        self.closed = False
        self._frames: asyncio.Queue[str | None] = asyncio.Queue()

    async def __aenter__(self) -> Socket:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    async def send_str(self, frame: str) -> None:
        self.sent += json.loads(frame)

    async def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        while (frame := await self._frames.get()) is not None:
            yield aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, frame, None)

    def answer(self, *answers: Answer) -> None:
        self._frames.put_nowait(msgspec.json.encode(answers).decode())

    def store_all(self) -> None:
        """Answer everything that was sent as stored."""
        self.answer(*(Answer("a", n=push["n"], seq=push["n"]) for push in self.sent))

    def hang_up(self) -> None:
        self._frames.put_nowait(None)


class Server:
    """The controllers that streams connect to: one answer for each try, a socket or an error."""

    def __init__(self) -> None:
        self.sockets: list[Socket] = []
        self.refuses: list[Exception] = []
        self.always: Exception | None = None
        self.left: list[str] = []
        self.backoffs: list[int] = []
        self.posted: list[PushText] = []
        self.post_answers: list[Pushed | Refused] = []
        self.url, self.http = "http://c", None

    async def open_socket(self, http: object, url: str, *, params: dict[str, str], **more: object) -> Socket:
        if self.refuses or self.always:
            raise self.refuses.pop(0) if self.refuses else cast(Exception, self.always)
        self.sockets.append(Socket(params["producer"]))
        return self.sockets[-1]

    async def access(self, url: str) -> dict[str, str]:
        return {}

    def leave(self, url: str) -> None:
        self.left.append(url)

    def backoff_s(self, tries: int) -> float:
        self.backoffs.append(tries)
        return 0.0

    async def read(self, kind: type[Pushed], method: str, *path: str, body: PushText) -> Pushed:
        self.posted.append(body)
        answer = self.post_answers.pop(0) if self.post_answers else Pushed("a", "", len(self.posted))
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def nth(self, n: int, items: int = 0) -> Socket:
        """Return the n-th connection, as soon as so many items were sent on it."""
        await eventually(lambda: len(self.sockets) >= n and len(self.sockets[n - 1].sent) >= items)
        return self.sockets[n - 1]

    def stream(self, producers: Producers | None = None, *, in_flight_max: int = 100, deadline_s: float = 60) -> Stream:
        given = producers or Producers()
        return Stream(cast(Any, self), "a", given, in_flight_max=in_flight_max, deadline_s=deadline_s)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(streams, "open_socket", server.open_socket)
    monkeypatch.setattr(streams, "SETTLE_S", 0.01)
    return server


async def test_an_idle_stream_reconnects_under_its_name_and_numbers_on(server: Server) -> None:
    async with server.stream() as stream:
        first = await server.nth(1)
        sent = await stream.send("one")
        (await server.nth(1, 1)).store_all()
        assert (await sent).seq == 1
        first.hang_up()
        second = await server.nth(2)
        assert second.producer == first.producer and second.sent == []
        await stream.send("two")
        assert (await server.nth(2, 1)).sent[0]["n"] == 2
        second.store_all()
    assert second.closed, "the connection ends with the block"


async def test_what_has_no_answer_is_sent_again_on_the_next_connection(server: Server) -> None:
    async with server.stream() as stream:
        sent = [await stream.send(text) for text in ("one", "two")]
        (await server.nth(1, 2)).answer(Answer("a", n=1, seq=1))
        assert (await sent[0]).seq == 1
        server.sockets[0].hang_up()
        second = await server.nth(2, 1)
        assert [push["n"] for push in second.sent] == [2] and server.left == ["http://c"]
        second.answer(Answer("a", n=2, seq=2, duplicate=True))
        assert (await sent[1]).duplicate


async def test_a_stream_that_was_answered_begins_its_pauses_anew(server: Server) -> None:
    server.refuses = [OSError("not yet")] * 3
    async with server.stream() as stream:
        await stream.send("one")
        (await server.nth(1, 1)).store_all()
        await stream.flush()
        server.sockets[0].hang_up()
        (await server.nth(2)).hang_up()
        await server.nth(3)
    assert server.backoffs == [0, 1, 2, 0, 1], "the second connection was not answered"


async def test_a_gap_is_a_pause_and_no_end(server: Server) -> None:
    async with server.stream() as stream:
        sent = await stream.send("one")
        (await server.nth(1, 1)).store_all()
        await sent
        sent = await stream.send("two")
        (await server.nth(1, 2)).answer(gap(2, last=0))
        second = await server.nth(2, 2)
        assert [(push["n"], push["text"]) for push in second.sent] == [(1, "one"), (2, "two")]
        second.store_all()
        assert (await sent).seq == 2 and stream.lost == 0


async def test_a_name_that_the_store_has_forgotten_is_given_up_only_by_a_stream_that_has_stored_nothing(
    server: Server,
) -> None:
    producers = Producers()
    async with server.stream(producers) as stream:
        await stream.send("one")
        (await server.nth(1, 1)).store_all()
    async with server.stream(producers) as stream:
        assert (await server.nth(2)).producer == server.sockets[0].producer, "the name is passed on"
        sent = await stream.send("two")
        assert (await server.nth(2, 1)).sent[0]["n"] == 2
        server.sockets[1].answer(gap(2, last=0))
        third = await server.nth(3, 1)
        assert third.producer != server.sockets[0].producer and third.sent[0]["n"] == 1
        third.store_all()
        await sent


async def test_a_refused_item_ends_the_stream_and_its_name_is_not_passed_on(server: Server) -> None:
    producers = Producers()
    with pytest.raises(Refused, match="too large"):
        async with server.stream(producers) as stream:
            sent, later = await stream.send("one"), await stream.send("two")
            problem = {"code": "TOO_LARGE", "status": 413, "detail": "too large"}
            (await server.nth(1, 2)).answer(Answer("a", n=1, problem=problem))
            with pytest.raises(Refused):
                await sent
            with pytest.raises(Refused):
                await later
            await stream.send("three")
    async with server.stream(producers) as stream:
        assert (await server.nth(2)).producer != server.sockets[0].producer


async def test_an_answer_to_a_later_item_answers_those_before_it(server: Server) -> None:
    async with server.stream() as stream:
        sent = [await stream.send(text) for text in ("one", "two")]
        (await server.nth(1, 2)).answer(Answer("a", n=2, seq=9, dropped=3))
        first, second = [await each for each in sent]
        assert (first.seq, first.duplicate, first.dropped) == (None, True, 0)
        assert (second.seq, second.duplicate, second.dropped) == (9, False, 3)


async def test_no_more_are_in_flight_than_allowed(server: Server) -> None:
    async with server.stream(in_flight_max=2) as stream:
        await stream.send("one")
        await stream.send("two")
        third = asyncio.ensure_future(stream.send("three"))
        socket = await server.nth(1, 2)
        await asyncio.sleep(0)
        assert not third.done()
        socket.answer(Answer("a", n=1, seq=1))
        await asyncio.wait_for(third, 60)
        await server.nth(1, 3)
        socket.store_all()


async def test_a_stream_without_a_connection_for_too_long_fails_with_the_reason(server: Server) -> None:
    server.always = OSError("nobody is there")
    with pytest.raises(Unreachable, match=r"nothing was stored for 0\.05 s \(nobody is there\)"):
        async with server.stream(deadline_s=0.05) as stream:
            await stream.send("one")


def handshake(status: int) -> aiohttp.WSServerHandshakeError:
    info = aiohttp.RequestInfo(URL("http://c"), "GET", cast(Any, {}), URL("http://c"))
    return aiohttp.WSServerHandshakeError(info, (), status=status, message="no")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_handshake_that_may_succeed_later_is_tried_again(server: Server, status: int) -> None:
    server.refuses = [handshake(status)]
    async with server.stream() as stream:
        await stream.send("one")
        (await server.nth(1, 1)).store_all()


@pytest.mark.parametrize("status", [400, 404, 499])
async def test_a_handshake_that_is_refused_ends_the_stream(server: Server, status: int) -> None:
    server.refuses = [handshake(status)]
    with pytest.raises(Refused) as refused:
        async with server.stream() as stream:
            await stream.push("one")
    assert refused.value.status == status and server.sockets == []


async def test_a_key_that_mints_nothing_ends_the_stream_unless_it_may_later(server: Server) -> None:
    server.refuses = [NotMinted("later", code="NOT_READY")]
    async with server.stream() as stream:
        await stream.send("one")
        (await server.nth(1, 1)).store_all()
    server.refuses = [NotMinted("never")]
    with pytest.raises(NotMinted):
        async with server.stream() as stream:
            await stream.push("one")


def no_place() -> Answer:
    return Answer("a", n=1, problem={"code": "TOO_MANY_PRODUCERS", "status": 429, "detail": "eight already"})


async def test_without_a_place_among_the_producers_items_are_stored_one_by_one(server: Server) -> None:
    producers = Producers()
    async with server.stream(producers) as stream:
        sent = [await stream.send(text) for text in ("one", "two")]
        (await server.nth(1, 2)).answer(no_place())
        assert [(await each).seq for each in sent] == [1, 2]
        assert (await stream.push("three", boundary=True)).seq == 3
    name = server.sockets[0].producer
    assert [(each.text, each.boundary, each.request_id) for each in server.posted] == [
        ("one", False, f"{name}-1"),
        ("two", False, f"{name}-2"),
        ("three", True, f"{name}-3"),
    ]
    assert len(server.sockets) == 1 and producers.take("a").name != name


async def test_one_by_one_a_full_queue_is_waited_for_and_any_other_refusal_ends_the_stream(server: Server) -> None:
    full = Refused(429, {"code": "TOO_MANY_PENDING"}, retry_after_s=0.001)
    server.post_answers = [full, Pushed("a", "", 7), Refused(413, {"code": "TOO_LARGE", "detail": "too large"})]
    with pytest.raises(Refused, match="too large"):
        async with server.stream() as stream:
            sent = await stream.send("one")
            (await server.nth(1, 1)).answer(no_place())
            assert (await sent).seq == 7
            await stream.push("two")
    assert [each.text for each in server.posted] == ["one", "one", "two"]


def test_frames_are_within_a_controller_s_limits() -> None:
    items = [b'{"n":%d,"text":"%b"}' % (n, b"x" * 20_000) for n in range(200)]
    frames = [*frames_of(items)]
    assert [each for frame in frames for each in json.loads(frame)] == [json.loads(item) for item in items]
    assert all(len(frame) <= PUSH_FRAME_BYTES_MAX and len(json.loads(frame)) <= PUSHES_MAX for frame in frames)
    assert len(frames) == 4
    small = [*frames_of([b"{}"] * (PUSHES_MAX + 1))]
    assert [len(json.loads(frame)) for frame in small] == [PUSHES_MAX, 1]
    assert [*frames_of([])] == []
    wide = json.dumps({"config": {f"k{n}": "v" for n in range(400)}}).encode()
    assert [json.loads(frame) for frame in frames_of([wide, wide])] == [[json.loads(wide)]] * 2, (
        "too much for one frame"
    )


async def test_an_item_that_fits_into_no_frame_is_refused(server: Server) -> None:
    async with server.stream() as stream:
        with pytest.raises(BadValue, match=f"send at most {PUSH_FRAME_BYTES_MAX - 2}"):
            await stream.send("x" * PUSH_FRAME_BYTES_MAX)
        await stream.send("x")
        socket = await server.nth(1, 1)
        assert socket.sent[0]["n"] == 1, "what was refused has no number"
        largest = PUSH_FRAME_BYTES_MAX - 2 - stream._unanswered[0].size_bytes + 1
        with pytest.raises(BadValue):
            await stream.send("x" * (largest + 1))
        await stream.send("x" * largest)
        await server.nth(1, 2)
        socket.store_all()


async def test_tokens_are_joined_into_sentences_and_the_rest_is_sent_before_the_next_item(server: Server) -> None:
    async with server.stream() as stream:
        for token in ("Hello ", "there. ", "How are"):
            await stream.token(token)
        await stream.send("next")
        socket = await server.nth(1, 3)
        assert [(push["text"].strip(), push.get("boundary", False)) for push in socket.sent] == [
            ("Hello there.", True),
            ("How are", True),
            ("next", False),
        ]
        socket.store_all()
