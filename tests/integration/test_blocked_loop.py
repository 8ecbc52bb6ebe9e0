"""A runtime that calls blocking code holds up its Worker's event loop: for a while that is no death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dhsched.client.credentials import client_tls
from dhsched.dispatch.api import blocked
from dhsched.dispatch.app import Replica, open_context
from dhsched.dispatch.context import DispatchContext
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from dhsched.tokens import Boot, Tokens
from dhsched.web import listener_tls, serve
from dhsched.worker.watchdog import Speaker, Watchdog, post
from tests.harness.fleet import until
from tests.harness.processes import FleetProcesses, Process, processes
from tests.harness.recovering import Recovering, ready, recovering

TROUBLED = ("--runtime", "tests.harness.troubled:speak")


async def two_workers(f: Recovering, p: FleetProcesses, *arguments: str) -> tuple[Process, Process]:
    """The Worker that runs the live `a`, and another one that could."""
    both = {name: await p.worker(name, *TROUBLED, *arguments) for name in ("w0", "w1")}
    await f.until("/v1/workers", lambda found: ready(found) == 2, "the Workers")
    placed = await f.create("a")
    name = placed["worker"].partition("#")[0]
    await f.until("/v1/lives/a", lambda found: found["claimed"], "the claim")
    return both.pop(name), both.popitem()[1]


async def kinds_of(f: Recovering, worker: str, *kinds: str) -> list[str]:
    return [event["kind"] for event in await f.events(*kinds) if event["worker"] == worker]


@pytest.mark.release
async def test_a_worker_that_is_blocked_for_five_seconds_is_not_lost(tmp_path: Path) -> None:
    async with recovering(tmp_path) as f, processes(f) as p:
        here, _ = await two_workers(f, p)
        at = await f.get("/v1/lives/a")
        for text in ("block 5", "after"):
            assert (await f.push("a", text))[0] == 200
        await f.until("/v1/lives/a", lambda found: found["acked"] == 2, "both acks")
        assert here.consumed("a") == [(1, 1, "block 5"), (1, 2, "after")], "once each, by the same generation"
        now = await f.get("/v1/lives/a")
        assert (now["epoch"], now["worker"], now["dropped"]["poison"]) == (1, at["worker"], 0)
        assert await kinds_of(f, at["worker"], "worker_lost", "live_recovered", "poison_dropped") == []
        blocked = [event for event in await f.events("worker_blocked") if event["worker"] == at["worker"]]
        # Once; a replica whose answer was late makes the watchdog tell another one too.
        assert blocked and len({event["replica"] for event in blocked}) == len(blocked), blocked
        numbers = blocked[0]["numbers"]
        assert numbers["blocked_ms"] >= 1_000 and numbers["frame"].startswith("troubled.py:"), numbers
        assert numbers["frame"].split()[1] == "think,"


@pytest.mark.release
async def test_a_worker_that_is_blocked_for_ever_is_lost_and_its_live_goes_on_elsewhere(tmp_path: Path) -> None:
    async with recovering(tmp_path) as f, processes(f) as p:
        _, other = await two_workers(f, p, "--blocked-max-s", "2")
        at = await f.get("/v1/lives/a")
        assert (await f.push("a", "block 600"))[0] == 200
        await until(lambda: other.consumed("a") == [(2, 1, "block 600")], "the item, elsewhere")
        await f.until("/v1/lives/a", lambda found: found["acked"] == 1, "its ack")
        kinds = await kinds_of(f, at["worker"], "worker_blocked", "worker_lost")
        assert kinds[0] == "worker_blocked" and kinds[-1] == "worker_lost" and kinds.count("worker_lost") == 1


@asynccontextmanager
async def replica(address: Address, certificate: Path) -> AsyncIterator[tuple[DispatchContext, str]]:
    """A Dispatch replica that asks for keys and speaks TLS, and its URL."""
    cert, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
    settings = DispatchSettings(access="keys", store=address.url(), tls_cert=cert, tls_key=key)
    async with open_context(address, settings) as context:
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        tls, say = listener_tls(settings), listening.set_result
        serving = asyncio.create_task(
            serve(Replica(context).app(), host="127.0.0.1", port=0, stop_s=1, say=say, stop=stop, tls=tls)
        )
        try:
            yield context, await listening
        finally:
            stop.set()
            await serving


async def test_only_the_boot_itself_is_heard_and_only_while_it_is_not_lost(
    server: Address, certificate: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(blocked, "BEAT_MIN_S", 0.0)
    tls = client_tls(str(certificate / "cert.pem"))
    async with replica(server, certificate) as (context, url):
        store, tokens = context.store, Tokens(context.ring)
        for name in ("a", "b"):
            made = await store.register_worker(name=name, boot=f"boot-{name}", pool="gpu", capacity=1)
            await store.report(worker=made.worker, boot=f"boot-{name}")
        token = {w: tokens.issue(Boot(w, f"boot-{w[0]}", w[0], "gpu", 1)) for w in ("a#1", "b#2")}

        async def say(worker: str, shown: str, **body: object) -> int:
            path = f"{url}/v1/workers/{worker.replace('#', '%23')}/blocked"
            return await asyncio.to_thread(post, path, {"blocked_ms": 700, **body}, token=shown, tls=tls)

        async def beat(worker: str) -> int:
            return (await context.records.workers.beats())[worker].beat

        assert (await say("a#1", token["a#1"]), await beat("a#1")) == (200, 2)
        assert (await say("a#1", token["b#2"]), await beat("a#1"), await beat("b#2")) == (403, 2, 1)
        assert (await say("a#1", "nothing"), await beat("a#1")) == (401, 2)
        assert (await say("a#1", token["a#1"], frame="x" * 5_000), await beat("a#1")) == (400, 2)
        for _ in range(3):
            assert await say("a#1", token["a#1"], tell=True, frame="x.py:1 f\x1b[2J") == 200
        await store.expire_worker(worker="b#2", beat=1)
        assert (await say("b#2", token["b#2"]), (await context.records.workers.beats())["b#2"].lost) == (200, True)
        monkeypatch.setattr(blocked, "BEAT_MIN_S", 60.0)
        assert (await say("a#1", token["a#1"]), await beat("a#1")) == (429, 5)
        await context.events.written()
        log = await store.link.call("XRANGE", store.keys.of("events"), "-", "+")
        [told_once] = [entry[1][1] for entry in log if b"worker_blocked" in entry[1][1]]
        assert b'"frame":"x.py:1 f [2J"' in told_once and b"a#1" in told_once


async def test_a_beat_that_one_replica_does_not_take_goes_to_another(server: Address, certificate: Path) -> None:
    async with replica(server, certificate) as (context, url):
        made = await context.store.register_worker(name="a", boot="boot", pool="gpu", capacity=1)
        token = Tokens(context.ring).issue(Boot(made.worker, "boot", "a", "gpu", 1))
        watchdog = Watchdog(10, client_tls(str(certificate / "cert.pem")))
        watchdog.speaker = lambda: Speaker(made.worker, token, ("https://127.0.0.1:9", url))
        said = [await asyncio.to_thread(watchdog._beat, 0.7, "x.py:1 f", False) for _ in range(2)]
        assert said == [False, True] and (await context.records.workers.beats())[made.worker].beat == 1
