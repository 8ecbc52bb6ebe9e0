"""`config`, `metadata` and `state` as values: in a Session, for a child, in answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dhsched.client import Client
from dhsched.links.json_bounds import excess
from dhsched.worker import Session
from dhsched.worker.exec import Exec
from tests.harness.acked import until_acked
from tests.harness.fleet import fleet, until

CHILD = """
import json, sys
for line in sys.stdin:
    print(line, end="", file=open(sys.argv[1], "a"), flush=True)
    said = json.loads(line)
    if "input" in said:
        sys.stdout.buffer.write(b'{"not": "\\xff"}\\n')  # Not ours to read: a line for the log.
        print(json.dumps({"ack": said["input"]["seq"], "state": json.loads(sys.argv[2])}), flush=True)
    elif "close" in said:
        break
"""


class Keep:
    """A runtime that notes what it is given, and saves `saves` with every item."""

    def __init__(self, saves: Any) -> None:
        self.saves = saves
        self.opened: list[tuple[Any, Any, Any]] = []
        self.items: list[tuple[str, Any, Any]] = []

    async def __call__(self, session: Session) -> None:
        self.opened.append((session.metadata, session.config, session.state))
        async for item in session.inputs():
            self.items.append((item.kind, item.config, session.config))
            session.state = self.saves


@pytest.mark.parametrize("saves", [{"turn": 3, "words": ["a"]}, "text", 7, None, b"3", b"\x00raw", b"{}"])
async def test_a_runtime_gets_back_what_it_saved(tmp_path: Path, saves: Any) -> None:
    keep = Keep(saves)
    async with fleet(tmp_path) as f:
        await f.start_worker(keep, "a")
        await f.start_worker(keep, "b")
        body = {"live_id": "L", "digital_id": "demo"}
        assert (await f.post(f"{f.dispatch[0]}/v1/lives?wait_s=10", body))[0] == 201
        await until(lambda: keep.opened, "the runtime")
        assert keep.opened == [({}, {}, {})], "nothing was given"
        live = await f.get("/v1/lives/L")
        assert live["metadata"] == live["config"] == {}
        await f.push("L", "hello")
        await until_acked(f, "L", 1)
        assert (await f.reassign("L"))[0] == 200
        await until(lambda: len(keep.opened) == 2, "the next generation")
        metadata, config, state = keep.opened[1]
        assert (metadata, config) == ({}, {}) and state == saves and type(state) is type(saves)


async def test_config_and_metadata_are_values(tmp_path: Path) -> None:
    keep = Keep({})
    async with fleet(tmp_path) as f, Client(f.dispatch, f.infer) as client:
        await f.start_worker(keep, "a")
        made = await client.create("demo", metadata={"user": 7}, config={"voice": "a"}, wait_s=10)
        await until(lambda: keep.opened, "the runtime")
        await client.configure(made.live_id, {"voice": "b"})
        await until(lambda: keep.items, "the item")
        assert keep.opened == [({"user": 7}, {"voice": "a"}, {})]
        assert keep.items == [("config", {"voice": "b"}, {"voice": "b"})]
        live = await client.get(made.live_id)
        assert (live.metadata, live.config) == ({"user": 7}, {"voice": "b"})


@pytest.mark.parametrize("saves", [{"count": 1}, "1", [1, 2]])
async def test_a_child_is_told_values(tmp_path: Path, saves: Any) -> None:
    script, told = tmp_path / "child.py", tmp_path / "told"
    script.write_text(CHILD)
    command = Exec(f"{sys.executable} {script} {told} '{json.dumps(saves)}'")

    def opened() -> list[Any]:
        lines = told.read_text().splitlines() if told.exists() else []
        return [said["open"] for line in lines if "open" in (said := json.loads(line))]

    async with fleet(tmp_path) as f, Client(f.dispatch, f.infer) as client:
        await f.start_worker(command, "a")
        await f.start_worker(command, "b")
        await f.create("empty")
        await until(opened, "the first child")
        assert [opened()[0][name] for name in ("metadata", "config", "state")] == [{}, {}, {}]
        await client.end("empty")
        await until(lambda: '"close"' in told.read_text(), "the end of the first child")
        told.unlink()
        made = await client.create("demo", metadata={"user": 7}, config={"voice": "a"}, wait_s=10)
        await client.configure(made.live_id, {"voice": "b"})
        await until_acked(f, made.live_id, 1)
        inputs = [json.loads(line)["input"] for line in told.read_text().splitlines() if '"input"' in line]
        assert inputs[0]["config"] == {"voice": "b"}
        assert (await f.reassign(made.live_id))[0] == 200
        await until(lambda: len(opened()) == 2, "the next child")
        found = opened()[1]
        assert (found["metadata"], found["config"], found["state"]) == ({"user": 7}, {"voice": "b"}, saves)


def nested(levels: int) -> str:
    """A JSON object of so many levels, as text: Python's own encoder would go as deep."""
    return '{"a": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


async def test_what_is_nested_too_deep_for_a_runtime_is_refused_by_the_api(tmp_path: Path) -> None:
    """Whoever takes it in may be able to read it, and a Worker, deeper on its stack, not."""
    keep = Keep({})

    async def post(url: str, body: str) -> tuple[int, Any]:
        async with f.http.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
            return response.status, await response.json()

    async with fleet(tmp_path) as f:
        await f.start_worker(keep, "a")
        lives, text = f"{f.dispatch[0]}/v1/lives?wait_s=10", f"{f.infer[0]}/v1/lives/L/text"
        for field in ("metadata", "config"):
            for levels in (65, 900, 980, 5_000):
                body = f'{{"live_id": "L", "digital_id": "demo", "{field}": {nested(levels)}}}'
                status, problem = await post(lives, body)
                assert (status, problem["code"]) == (400, "BAD_REQUEST"), levels
        assert (await post(lives, f'{{"live_id": "L", "digital_id": "demo", "config": {nested(64)}}}'))[0] == 201
        for levels in (65, 900, 980, 5_000):
            status, problem = await post(text, f'{{"kind": "config", "config": {nested(levels)}}}')
            assert (status, problem["code"]) == (400, "BAD_REQUEST"), levels
            async with f.http.ws_connect(f"{f.infer[0]}/v1/lives/L/stream") as socket:
                frame = f'{{"kind": "config", "config": {nested(levels)}}}'
                await socket.send_str(frame)
                [answer] = await socket.receive_json(timeout=20)
                said = "TOO_LARGE" if excess(frame.encode()) else "BAD_REQUEST"  # More are not even decoded.
                assert answer["problem"]["code"] == said, levels
        assert (await post(text, f'{{"kind": "config", "config": {nested(64)}}}'))[0] == 200
        await until_acked(f, "L", 1)
        assert [kind for kind, _, _ in keep.items] == ["config"]
