"""Messages of a runtime reach the live's events: in order, none twice, and none of a superseded generation."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from dhsched.client import Client
from dhsched.client.http import Replicas
from dhsched.worker.exec import exec_runtime
from dhsched.worker.session import Session
from tests.harness.clients import client_of
from tests.harness.fleet import fleet, until, until_so

CHILD = """
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if "input" in said:
        seq = said["input"]["seq"]
        for word in said["input"]["text"].split():
            print(json.dumps({"emit": {"name": "word", "data": {"seq": seq, "text": word}}}), flush=True)
        print(json.dumps({"ack": seq}), flush=True)
    elif "close" in said:
        break
"""


async def words(session: Session) -> None:
    """A runtime that emits every word of its input."""
    async for item in session.inputs():
        for word in item.text.split():
            session.emit("word", {"seq": item.seq, "text": word})
            await session.emits_stored()


async def emitted(client: Client, live: str, count: int) -> list[dict[str, Any]]:
    """The first `count` messages in the live's events."""
    found: list[dict[str, Any]] = []
    async for event in client.events(live):
        if event.name == "emitted":
            found.append(event.data)
            if len(found) == count:
                break
    return found


async def test_who_waits_for_messages_of_an_ended_live_waits_no_longer(tmp_path: Path) -> None:
    """They cannot be stored any more: a runtime that waits for them would keep its slot until it is cancelled."""
    left: list[str] = []

    async def says_goodbye(session: Session) -> None:
        try:
            async for item in session.inputs():
                session.emit("heard", {"seq": item.seq})
            for _ in range(3):
                session.emit("goodbye")
                await session.emits_stored()
            left.append("by itself")
        except asyncio.CancelledError:
            left.append("cancelled")
            raise

    async with fleet(tmp_path) as f:
        await f.start_worker(says_goodbye, "w1", teardown_s=10.0)
        await f.create("L")
        await f.push("L", "one")
        async with client_of(f) as client:
            await emitted(client, "L", 1)
            await client.end("L")
            await until(lambda: left, "the end of the runtime")
    assert left == ["by itself"]


async def test_a_watcher_gets_the_messages_that_are_kept_and_then_each_new_one(tmp_path: Path) -> None:
    async with fleet(tmp_path, infer=2) as f:
        await f.start_worker(words, "w1")
        await f.create("L")
        await f.push("L", "one two three")
        async with client_of(f) as client:
            early = await emitted(client, "L", 3)
            later = asyncio.create_task(emitted(client, "L", 5))
            await asyncio.sleep(0)
            await f.push("L", "four five")
            assert (await later)[:3] == early
        assert [one["data"] for one in early] == [{"seq": 1, "text": word} for word in ("one", "two", "three")]
        assert [(one["epoch"], one["n"], one["name"]) for one in later.result()] == [
            (1, n, "word") for n in range(1, 6)
        ]


async def test_a_watcher_that_names_its_last_message_gets_only_later_ones(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        await f.start_worker(words, "w1")
        await f.create("L")
        await f.push("L", "one two three")
        async with client_of(f) as client:
            await emitted(client, "L", 3)
            replicas: Replicas = client._infer
            url = f"{replicas.url}/v1/lives/L/events"
            async with f.http.get(url, headers={"Last-Event-ID": "1.2"}) as response:
                lines = []
                async for line in response.content:
                    lines.append(line.decode().strip())
                    if line.startswith(b"data") and b'"three"' in line:
                        break
        assert [line for line in lines if line.startswith("id: ")] == ["id: 1.3"]


async def test_messages_survive_the_end_of_a_controller_and_a_reassign(tmp_path: Path) -> None:
    """Words come all the time; a controller stops, then the live moves. Each generation's words are whole."""
    async with fleet(tmp_path, infer=2) as f:
        await f.start_worker(words, "w1")
        await f.start_worker(words, "w2")
        stop = await f.start_infer()
        await f.create("L")
        store = f.controllers[0].context.records.lives
        for n in range(10):
            assert (await f.push("L", f"a{n} b{n}"))[0] == 200
            if n == 3:
                stop.set()
            if n == 6:
                assert (await f.reassign("L"))[0] == 200
        last = b'{"seq":10,"text":"b9"}'
        kept = await until_so(
            lambda: store.emits_after("default/L", (0, 0)), lambda kept: kept and kept[-1].data == last, "the last word"
        )
        by_epoch: dict[int, list[int]] = {}
        for message in kept:
            by_epoch.setdefault(message.epoch, []).append(message.n)
        assert [*by_epoch] == sorted(by_epoch)
        for numbers in by_epoch.values():
            assert numbers == [*range(1, len(numbers) + 1)], "whole and in order"


async def test_a_child_process_emits(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    with exec_runtime(f"{sys.executable} {script}") as runtime:
        async with fleet(tmp_path) as f:
            await f.start_worker(runtime, "w1")
            await f.create("L")
            text = " ".join(f"w{n}" for n in range(200))
            await f.push("L", text)
            async with client_of(f) as client:
                found = await emitted(client, "L", 200)
        assert [one["data"]["text"] for one in found] == text.split()
        assert [one["n"] for one in found] == [*range(1, 201)]
