"""One frame of one peer costs what it may cost: lists, bytes and turns are bounded on every socket that is served."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import WSMsgType

from dhsched.client.stream import frames_of
from dhsched.dispatch.worker_link import PATH as LINK
from dhsched.infer.pull import PATH as PULL
from dhsched.infer.stream import read_pushes
from dhsched.links import messages
from dhsched.links.json_bounds import CONTAINERS_MAX
from dhsched.web import Problem
from tests.harness.fleet import Fleet, Record, fleet, until
from tests.harness.theatre import idle, theatre


async def said_on(socket: aiohttp.ClientWebSocketResponse) -> list[aiohttp.WSMessage]:
    """Everything that a peer says until it closes."""
    heard: list[aiohttp.WSMessage] = []
    async with asyncio.timeout(20):
        while (message := await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
            heard.append(message)
    return heard


async def test_no_socket_inflates_what_it_is_sent(tmp_path: Path) -> None:
    """4 kB that inflate to 4 MB are cheap to send and dear to read, so compression is not agreed upon."""
    async with fleet(tmp_path) as f:
        for url in (f.dispatch[0] + LINK, f.infer[0] + PULL, f.infer[0] + "/v1/stream"):
            async with f.http.ws_connect(url, compress=15) as socket:
                assert socket.compress == 0, url


async def test_a_room_inflates_nothing_and_takes_no_long_frame(tmp_path: Path) -> None:
    async with theatre(tmp_path, packet_bytes_max=4_096) as at:
        await at.fleet.start_worker(idle, "a")
        placed = await at.fleet.create("demo")
        headers = {"Authorization": f"Bearer {at.publish(placed['worker'], 1).token}"}
        async with at.fleet.http.ws_connect(f"{at.url}/v1/publish", headers=headers, compress=15) as socket:
            assert socket.compress == 0
            await socket.send_str("[" * 10_000)
            assert await said_on(socket) == []
            assert socket.close_code in (4400, aiohttp.WSCloseCode.MESSAGE_TOO_BIG)


@pytest.mark.parametrize("items", [300_000, 1_390_000])
async def test_a_frame_of_empty_items_is_refused_and_stores_nothing(tmp_path: Path, items: int) -> None:
    async with fleet(tmp_path) as f:
        await f.start_worker(Record(), "w1")
        await f.create("a")
        async with f.http.ws_connect(f"{f.infer[0]}/v1/lives/a/stream") as socket:
            with contextlib.suppress(ConnectionError):
                await socket.send_str("[" + "{}," * items + "{}]")
            heard = await said_on(socket)
        if items < 1_000_000:  # The other one is not even read to its end, so it may be cut off while it is sent.
            assert socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
            (problem,) = [answer["problem"] for message in heard for answer in message.json()]
            assert problem["code"] == "TOO_LARGE" and problem["items_max"] == messages.PUSHES_MAX
        async with f.http.get(f"{f.infer[0]}/metrics") as metrics:
            assert "dhsched_pushes_total{" not in await metrics.text()


def test_a_frame_with_too_many_items_is_refused_before_they_are_built() -> None:
    frame = "[" + "{}," * 300_000 + "{}]"
    tracemalloc.start()
    try:
        with pytest.raises(Problem, match=f"{messages.PUSHES_MAX}"):
            read_pushes(frame)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * len(frame)


def test_braces_in_a_text_are_not_items() -> None:
    text = '{"' * 10_000 + "\\"
    (push,) = read_pushes(f'[{{"text": "{text.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"}}]')
    assert push.text == text


@pytest.mark.parametrize("end", ["", "\\"])
async def test_a_frame_whose_text_never_ends_is_refused_like_any_other(tmp_path: Path, end: str) -> None:
    """Each escaped quote could begin a text. To look from each of them to the frame's end would take an hour."""
    frame = "{" * (CONTAINERS_MAX + 1) + '"' + '\\"' * 500_000 + end
    async with fleet(tmp_path) as f, f.http.ws_connect(f"{f.infer[0]}/v1/stream") as socket:
        await socket.send_str(frame)
        heard = await said_on(socket)
    assert [answer["problem"]["code"] for message in heard for answer in message.json()] == ["TOO_LARGE"]


async def test_long_frames_are_stored_in_order_and_answered(tmp_path: Path) -> None:
    """More items than a turn has, and than one stream may have in flight."""
    async with fleet(tmp_path, stream_in_flight_max=300) as f:
        await f.start_worker(Record(), "w1")
        await f.create("a")
        async with f.http.ws_connect(f"{f.infer[0]}/v1/lives/a/stream?producer=p") as socket:
            for frame in frames_of(msgspec.json.encode({"n": n, "text": "x"}) for n in range(1, 901)):
                await socket.send_str(frame)
            answers: list[dict[str, Any]] = []
            while len(answers) < 900:
                answers += await socket.receive_json(timeout=10)
        assert [(each["n"], each["seq"]) for each in answers] == [(n, n) for n in range(1, 901)]


async def registered(f: Fleet, socket: aiohttp.ClientWebSocketResponse, capacity: int = 4) -> messages.Registered:
    await socket.send_bytes(messages.encode([messages.Register("w1", "boot", "gpu", capacity)]))
    (said,) = messages.read_from_dispatch((await socket.receive(10)).data)
    assert isinstance(said, messages.Registered)
    return said


@pytest.mark.parametrize("field", ["busy", "prepared"])
async def test_a_report_of_more_slots_than_the_worker_has_is_refused(tmp_path: Path, field: str) -> None:
    async with fleet(tmp_path) as f, f.http.ws_connect(f.dispatch[0] + LINK) as socket:
        said = await registered(f, socket, capacity=4)
        tags = [f"default/l{n}@1" for n in range(1_000)]
        report = messages.Report(0, 0, *((tags, []) if field == "busy" else ([], tags)))
        await socket.send_bytes(messages.encode([report]))
        heard = [one for message in await said_on(socket) for one in messages.read_from_dispatch(message.data)]
        assert [(one.code, "1000" in one.detail) for one in heard if isinstance(one, messages.Problem)] == [
            ("BAD_REQUEST", True)
        ]
        beat = await f.replicas[0].records.link.call(
            "HGET", f.replicas[0].records.keys.of("worker", said.worker), "beat"
        )
        assert int(beat or 0) == 0, "the report has reached the store"


async def test_one_link_registers_one_boot(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f, f.http.ws_connect(f.dispatch[0] + LINK) as socket:
        said = await registered(f, socket)
        many = [messages.Register(f"w{n}", f"boot{n}", "gpu", 4) for n in range(2, 1_000)]
        await socket.send_bytes(messages.encode(many))
        heard = [one for message in await said_on(socket) for one in messages.read_from_dispatch(message.data)]
        assert [type(one) for one in heard] == [messages.Problem]
        assert [each["worker"] for each in (await f.get("/v1/workers"))["workers"]] == [said.worker]


async def test_others_have_their_turn_while_a_frame_of_opens_is_served(tmp_path: Path) -> None:
    """Sixteen thousand questions of one Worker are sixteen thousand turns, not one."""
    async with fleet(tmp_path) as f, f.http.ws_connect(f.dispatch[0] + LINK) as link:
        said = await registered(f, link)
        count = 16_000
        answered = 0

        async def flood(socket: aiohttp.ClientWebSocketResponse) -> None:
            nonlocal answered
            asked = [messages.Open(f"default/l{n}", 1) for n in range(count)]
            frames = range(0, count, messages.MESSAGES_MAX)
            sending = asyncio.create_task(send([asked[n : n + messages.MESSAGES_MAX] for n in frames], socket))
            while answered < count:
                heard = messages.read_infer_says((await socket.receive(60)).data)
                # On a machine that is very busy the store may be late for some: that is an answer, too.
                answered += sum(isinstance(one, messages.Stale | messages.Problem) for one in heard)
            await sending

        async def send(frames: list[list[messages.Open]], socket: aiohttp.ClientWebSocketResponse) -> None:
            for each in frames:
                await socket.send_bytes(messages.encode(each))

        async with (
            f.http.ws_connect(f.infer[0] + PULL) as first,
            f.http.ws_connect(f.infer[0] + PULL) as second,
        ):
            for socket in (first, second):
                await socket.send_bytes(messages.encode([messages.Hello(said.token)]))
                await socket.receive(10)
            flooding = asyncio.create_task(flood(first))
            await until(lambda: answered > 0, "the first answers", 60)
            await second.send_bytes(messages.encode([messages.Open("default/other", 1)]))
            (other,) = messages.read_infer_says((await second.receive(60)).data)
            assert isinstance(other, messages.Stale) and other.live == "default/other"
            assert answered < count // 2, "the other Worker waited for all of them"
            await flooding


async def test_a_frame_has_fewer_messages_than_a_sender_could_ever_put_into_it(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f, f.http.ws_connect(f.infer[0] + PULL) as socket:
        await socket.send_bytes(messages.encode([messages.Leave("default/a", 1)] * (messages.MESSAGES_MAX + 1)))
        heard = [one for message in await said_on(socket) for one in messages.read_infer_says(message.data)]
        assert [one.code for one in heard if isinstance(one, messages.Problem)] == ["BAD_REQUEST"]
