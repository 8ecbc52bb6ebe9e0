"""Fleet events: said, listed, followed, bounded, and never in the way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.local.pids import frozen
from dhsched.store.records import events
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving


async def listed(api: Api, query: str = "") -> Any:
    await api.context.events.written()
    status, document = await api("GET", f"/v1/events{query}")
    assert status == 200, document
    return document


async def test_events_are_listed_from_a_cursor_and_followed() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        assert await listed(api) == {"events": [], "last": None}
        say = api.context.events.say
        say("worker_lost", worker="gpu-a#1", beat=7, lives=3)
        say("live_recovered", live="default/L", worker="gpu-b#2", need="lost")
        first = await listed(api)
        assert [(e["kind"], e["worker"], e["tenant"], e["live_id"], e["replica"]) for e in first["events"]] == [
            ("worker_lost", "gpu-a#1", "", "", "d1"),
            ("live_recovered", "gpu-b#2", "default", "L", "d1"),
        ]
        assert first["events"][0]["numbers"] == {"beat": 7, "lives": 3}
        assert await listed(api, f"?after={first['last']}") == {"events": [], "last": first["last"]}
        assert [e["kind"] for e in (await listed(api, "?limit=1"))["events"]] == ["live_recovered"]
        stream = {"Accept": "text/event-stream", "Last-Event-ID": first["events"][0]["id"]}
        async with api.client.get("/v1/events", headers=stream) as response:
            assert (await following(response))["kind"] == "live_recovered"
            say("brake_on", silent=5)
            assert (await following(response))["kind"] == "brake_on"
        env = {"DHSCHED_URL": f"http://127.0.0.1:{api.client.port}"}
        shown = await asyncio.to_thread(CliRunner().invoke, cli.app, ["events"], env=env)
        assert "worker_lost" in shown.output and "lives=3" in shown.output
        shown = await asyncio.to_thread(CliRunner().invoke, cli.app, ["events", "--json", "--limit", "2"], env=env)
        assert [e["kind"] for e in json.loads(shown.output)["events"]] == ["live_recovered", "brake_on"]
        assert (await api("GET", "/v1/events?after=x"))[0] == 400


async def following(response: Any) -> Any:
    async with asyncio.timeout(60):
        while not (line := await response.content.readline()).startswith(b"data: "):
            assert line, "the stream ended"
    return json.loads(line[6:])


async def test_the_log_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(events, "EVENTS_MAX", 10)
    async with empty_server("valkey") as server, serving(server.address) as api:
        for beat in range(500):
            api.context.events.say("worker_lost", beat=beat)
        await api.context.events.written()
        found = (await listed(api, "?limit=1000"))["events"]
        assert 10 <= len(found) <= 200, "the server may keep a node more"
        assert found[-1]["numbers"] == {"beat": 499}


@pytest.mark.release
async def test_an_event_that_cannot_be_written_is_dropped_and_counted() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        with frozen(server.pid):
            for _ in range(5_500):
                api.context.events.say("brake_on", silent=1)
            await api.context.events.written(5)
        async with api.client.get("/metrics") as response:
            counted = [line for line in (await response.text()).splitlines() if "events_dropped_total" in line]
        assert float(counted[-1].split()[-1]) == 5_500
