"""Filters of lists, `worker wait`, and the shape of JSON answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.errors import DhschedError
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving

Run = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Api, Run]]:
    async with empty_server("valkey") as server, serving(server.address) as api:
        env = {"DHSCHED_URL": f"http://127.0.0.1:{api.client.port}"}

        async def dhsched(*words: str) -> Any:
            result = await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env=env)
            if isinstance(result.exception, DhschedError):
                raise result.exception
            assert result.exit_code == 0, result.output
            return json.loads(result.stdout) if "json" in words or "--json" in words else result.stdout

        await api.configure()
        yield api, dhsched


async def test_events_are_filtered_by_live_worker_kind_and_time() -> None:
    async with served() as (api, dhsched):
        [a, b] = await api.workers(2, capacity=4)
        for worker in (a, b):
            await dhsched("worker", "cordon", worker)
            await dhsched("worker", "uncordon", worker)

        async def found(*words: str) -> list[tuple[str, str]]:
            answer = await dhsched("events", *words, "-o", "json")
            return [(each["kind"], each["worker"]) for each in answer["events"]]

        everything = await found()
        assert len(everything) == 4
        for name in (a, a.partition("#")[0]):
            assert await found("--worker", name) == [each for each in everything if each[1] == a]
        assert await found("--kind", "worker_cordoned") == [("worker_cordoned", a), ("worker_cordoned", b)]
        assert (
            await found("--kind", "worker_cordoned", "--kind", "worker_uncordoned", "--limit", "1") == everything[-1:]
        )
        assert await found("--since", "1h", "--kind", "worker_cordoned") == everything[::2]
        assert await found("--since", "1h") == everything
        assert await found("--live", "nobody") == []
        with pytest.raises(DhschedError, match="--since is 'soon'"):
            await found("--since", "soon")
        with pytest.raises(DhschedError, match="both given"):
            await found("--since", "1h", "--after", "0")


async def test_lives_are_filtered_by_what_a_list_knows_of_them() -> None:
    async with served() as (api, dhsched):
        await api.workers(1, capacity=4)
        for name in ("a", "b", "c"):
            assert (await api.create(name))[0] == 201

        async def found(*words: str) -> list[str]:
            return [each["live_id"] for each in (await dhsched("live", "ls", *words, "--json"))["lives"]]

        assert await found("--settled", "0s") == ["a", "b", "c"] == await found("--tenant", "default")
        assert await found("--settled", "0s", "--limit", "2") == ["a", "b"]
        for nothing in (("--settled", "1h"), ("--waiting",), ("--moving",), ("--pending",), ("--tenant", "acme")):
            assert await found(*nothing) == [], nothing


async def test_lives_that_have_ended_hide_none_that_is_to_end() -> None:
    async with served() as (api, dhsched):
        await api.workers(1, capacity=4)
        for name in ("a", "b", "c"):
            assert (await api.create(name, labels=["old"]))[0] == 201
        await dhsched("live", "end", "a")
        ended = await dhsched("live", "end", "--label", "old", "--limit", "1", "--yes", "--json")
        assert ended == {"live_ids": ["b"], "more": True}
        ended = await dhsched("live", "end", "--label", "old", "--limit", "1", "--yes", "--json")
        assert ended["live_ids"] == ["c"]


async def test_a_worker_is_waited_for_until_it_is_ready() -> None:
    async with served() as (api, dhsched):
        with pytest.raises(DhschedError, match="Worker w1 is not known after 0s"):
            await dhsched("worker", "wait", "w1", "--timeout", "0s")
        [worker] = await api.workers(1, capacity=4)
        name = worker.partition("#")[0]
        assert (await dhsched("worker", "wait", name, "--json"))["worker"] == worker
        assert worker in await dhsched("worker", "wait", worker)
        await dhsched("worker", "cordon", worker)
        with pytest.raises(DhschedError, match="is cordoned after 0s"):
            await dhsched("worker", "wait", name, "--timeout", "0s")
        waits = asyncio.ensure_future(dhsched("worker", "wait", name, "--timeout", "60s"))
        await api("POST", f"/v1/workers/{quote(worker, safe='')}/uncordon")
        assert worker in await waits


async def test_every_answer_in_json_is_an_object() -> None:
    lists = {
        ("live", "ls"): "lives",
        ("worker", "ls"): "workers",
        ("pool", "ls"): "pools",
        ("digital-id", "ls"): "digital_ids",
        ("tenant", "ls"): "tenants",
        ("context", "ls"): "contexts",
        ("recoveries",): "recoveries",
        ("events",): "events",
        ("config",): "settings",
        ("top",): "workers",
    }
    async with served() as (_, dhsched):
        for words, member in lists.items():
            for way in (("--json",), ("-o", "json")):
                assert isinstance((await dhsched(*words, *way))[member], list), words
        assert await dhsched("pool", "ls", "-o", "wide") == await dhsched("pool", "ls")
    result = CliRunner().invoke(cli.app, ["pool", "ls", "-o", "yaml"])
    assert result.exit_code == 2 and "not one of table, wide, json" in result.output
