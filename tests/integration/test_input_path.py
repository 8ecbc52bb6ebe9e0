"""The input path over real sockets: create, push, pull, ack, move, crash (paper, 4.3 and 7.4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from dhsched.client.stream import frames_of
from dhsched.worker.session import Session
from tests.harness.acked import slots_of, until_acked, until_slots
from tests.harness.fleet import PATIENCE_S, Consumed, Fleet, Record, fleet, until, until_so


async def test_pushed_text_reaches_the_runtime_in_order(tmp_path: Path, kind: str) -> None:
    record = Record()
    async with fleet(tmp_path, kind, dispatch=2) as f:
        await f.start_worker(record, "w1")
        placed = await f.create("a")
        for i in range(20):
            status, pushed = await f.push("a", f"t{i}")
            assert (status, pushed["seq"]) == (200, i + 1)
        await until(lambda: len(record.consumed) == 20, "20 items")
        assert record.texts("a") == [f"t{i}" for i in range(20)]
        assert {one.worker for one in record.consumed} == {placed["worker"]}


async def test_a_moved_live_goes_on_where_the_ack_stood(tmp_path: Path, kind: str) -> None:
    record = Record()
    async with fleet(tmp_path, kind) as f:
        await f.start_worker(record, "w1")
        await f.start_worker(record, "w2")
        first = await f.create("a")
        await f.push("a", "one")
        await f.push("a", "two")
        await until(lambda: len(record.consumed) == 2, "2 items")
        await until_acked(f, "a", 2)
        status, moved = await f.reassign("a")
        assert status == 200 and moved["worker"] != first["worker"]
        await f.push("a", "three")
        await until(lambda: len(record.consumed) == 3, "the third item")
        assert record.consumed[2].epoch == moved["epoch"]
        # What the first runtime remembered at its last ack moved with the live, and the first one is gone.
        assert record.opened[1] == ("default/a", moved["epoch"], b"seen 2")
        await until(lambda: ("default/a", first["epoch"]) in record.closed, "the end of the first runtime")
        await until_slots(f, first["worker"], 0)


async def test_a_crash_ends_one_runtime_and_its_item_comes_again(tmp_path: Path) -> None:
    record = Record()

    async def crash_once(session: Session, one: Consumed) -> None:
        if one.text == "boom" and one.epoch == placed["epoch"]:
            raise RuntimeError("boom")

    record.before_ack = crash_once
    async with fleet(tmp_path) as f:
        await f.start_worker(record, "w1")
        placed = await f.create("a")
        await f.create("b")
        await f.push("a", "fine")
        await f.push("a", "boom")
        await f.push("b", "others go on")
        await until(lambda: record.texts("b") == ["others go on"], "the other live's item")
        await until_slot(f, placed["worker"], "a", "vacant")
        status, again = await f.reassign("a", target=placed["worker"])
        assert status == 200 and again["epoch"] > placed["epoch"]
        await until(lambda: record.texts("a") == ["fine", "boom", "boom"], "the item again")
        assert ("default/a", again["epoch"], b"seen 1") in record.opened


async def test_an_interrupt_is_seen_at_once_and_drops_what_is_pending(tmp_path: Path) -> None:
    record, seen = Record(), asyncio.Event()

    async def long_speech(session: Session, one: Consumed) -> None:
        if one.text == "long":
            await session.interrupted.wait()
            seen.set()

    record.before_ack = long_speech
    async with fleet(tmp_path) as f:
        await f.start_worker(record, "w1")
        await f.create("a")
        for text in ("long", "never heard", "nor this"):
            await f.push("a", text)
        await until(lambda: record.texts("a") == ["long"], "the long item")
        await f.push("a", "stop", kind="interrupt")
        await asyncio.wait_for(seen.wait(), PATIENCE_S)
        await f.push("a", "after")
        await until(lambda: record.texts("a") == ["long", "stop", "after"], "what comes after the interrupt")
        live = await f.get("/v1/lives/a")
        assert live["dropped"]["interrupt"] == 3


async def test_a_push_is_refused_with_a_problem(tmp_path: Path) -> None:
    async with fleet(tmp_path, text_bytes_max=100) as f:
        await f.start_worker(Record(), "w1")
        assert (await f.push("nobody", "x"))[0] == 404
        await f.create("a")
        status, problem = await f.push("a", "x" * 101)
        assert (status, problem["code"]) == (413, "TOO_LARGE")
        status, problem = await f.push("a", "x", colour="red")
        assert (status, problem["field"]) == (400, "$.colour")
        first = await f.push("a", "x", request_id="r1")
        again = await f.push("a", "x", request_id="r1")
        assert first[1]["seq"] == 1 and again[1]["duplicate"]
        await f.post(f"{f.dispatch[0]}/v1/lives/a/end")
        status, problem = await f.push("a", "x")
        assert (status, problem["code"]) == (410, "ENDED")


async def test_too_much_pending_is_429(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        worker = await f.start_worker(Record(), "w1")
        await f.create("a")
        await worker.kill()
        socket = await f.http.ws_connect(f"{f.infer[0]}/v1/lives/a/stream?producer=p")
        for frame in frames_of(msgspec.json.encode({"n": n, "text": "x"}) for n in range(1, 1_002)):
            await socket.send_str(frame)
        answers: list[dict[str, Any]] = []
        while len(answers) < 1_001:
            answers += await socket.receive_json(timeout=PATIENCE_S)
        assert [each["n"] for each in answers] == list(range(1, 1_002))
        assert answers[-2]["seq"] == 1_000 and answers[-1]["problem"]["code"] == "TOO_MANY_PENDING"
        async with f.http.post(f"{f.infer[0]}/v1/lives/a/text", json={"text": "x"}) as response:
            assert response.status == 429 and int(response.headers["Retry-After"]) > 0


async def test_a_stream_is_exact(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path) as f:
        await f.start_worker(record, "w1")
        await f.create("a")
        url = f"{f.infer[0]}/v1/lives/a/stream?producer=p"
        async with f.http.ws_connect(url) as socket:
            for frame in frames_of(msgspec.json.encode({"n": n, "text": f"t{n}"}) for n in range(1, 101)):
                await socket.send_str(frame)
            answers: list[dict[str, Any]] = []
            while len(answers) < 100:
                answers += await socket.receive_json(timeout=PATIENCE_S)
            assert [(each["n"], each["seq"]) for each in answers] == [(n, n) for n in range(1, 101)]
        async with f.http.ws_connect(url) as socket:  # The client lost its connection and sends the tail again.
            await socket.send_json([{"n": n, "text": f"t{n}"} for n in range(91, 103)])
            answers = []
            while len(answers) < 12:
                answers += await socket.receive_json(timeout=PATIENCE_S)
            assert [each.get("duplicate", False) for each in answers] == [True] * 10 + [False] * 2
            await socket.send_json({"n": 200, "text": "too far"})
            assert (await socket.receive_json(timeout=PATIENCE_S))[0]["problem"]["last"] == 102
        await until(lambda: len(record.consumed) == 102, "102 items")
        assert record.texts("a") == [f"t{n}" for n in range(1, 103)]


async def test_tokens_are_joined_to_sentences(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path) as f:
        await f.start_worker(record, "w1")
        await f.create("a")
        async with f.http.ws_connect(f"{f.infer[0]}/v1/lives/a/stream") as socket:
            await socket.send_json([{"token": part} for part in ("Hel", "lo", ", wor", "ld.", " How", " are")])
            answers: list[dict[str, Any]] = []
            while sum("seq" in each for each in answers) < 2:
                answers += await socket.receive_json(timeout=PATIENCE_S)
        await until(lambda: len(record.consumed) == 2, "two joined items")
        assert record.texts("a") == ["Hello, world.", " How are"]
        assert [each["tokens"] for each in answers] == [4, 6]


async def test_events_say_what_happens(tmp_path: Path) -> None:
    async with fleet(tmp_path, watch_s=0.02) as f:
        await f.start_worker(Record(), "w1")
        placed = await f.create("a")
        await f.push("a", "one")
        await until_acked(f, "a", 1)
        events = []
        async with f.http.get(f"{f.infer[0]}/v1/lives/a/events") as response:
            await f.post(f"{f.dispatch[0]}/v1/lives/a/end")
            async for line in response.content:
                if line.startswith(b"event: "):
                    events.append(line.split()[1].decode())
        assert events == ["committed", "claimed", "released", "acked", "ended"]
        assert placed["epoch"] == 1


async def until_slot(f: Fleet, worker: str, live: str, state: str) -> None:
    def there(table: dict[str, bytes]) -> bool:
        return any(tag.startswith(f"default/{live}@") and found == state.encode() for tag, found in table.items())

    await until_so(lambda: slots_of(f, worker), there, f"{worker} to have {live} {state}")
