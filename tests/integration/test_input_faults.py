"""The input path when things break: controllers, replicas, pub/sub, scripts, slow readers, the store itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dhsched.infer import pull
from dhsched.links import messages, outbox
from dhsched.links.outbox import OUTBOX_BYTES_FULL
from dhsched.local.pids import frozen
from dhsched.tokens import Boot
from dhsched.worker.session import Session
from tests.harness.acked import until_acked, until_slots
from tests.harness.fleet import Fleet, Record, fleet, until, until_so
from tests.harness.pullers import FLUSH_SCRIPTS, KILL_PUBSUB, puller, tell_server


async def test_workers_change_over_when_a_controller_dies(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path, infer=2) as f:
        await f.start_worker(record, "w1", capacity=16)
        lives = [f"l{i}" for i in range(16)]  # So many that a hash spreads them, whatever the ports are.
        for live in lives:
            await f.create(live)
            await f.push(live, "before")
        await until(lambda: len(record.consumed) == 16, "the first items")
        held = [len(infer.context.pulls) for infer in f.controllers]
        assert sum(held) == 16 and all(held), f"pulls are spread: {held}"
        for peer in [*f.controllers[1].pull_text.peers]:
            await peer._socket.close()
        for live in lives:
            await f.push(live, "after")
        await until(lambda: len(record.consumed) == 32, "the items after")
        for live in lives:
            assert record.texts(live) == ["before", "after"]


async def test_a_stopping_controller_and_a_stopping_replica_say_goodbye(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path) as f:
        stop_dispatch = await f.start_dispatch()
        stop_infer = await f.start_infer()
        f.dispatch.reverse()  # The one that will stop is the one that Workers try first.
        await f.start_worker(record, "w1", capacity=8)
        f.dispatch.reverse()
        for i in range(6):
            await f.create(f"l{i}")
            await f.push(f"l{i}", "before")
        await until(lambda: len(record.consumed) == 6, "the first items")
        stop_infer.set()
        stop_dispatch.set()
        for i in range(6):
            await f.push(f"l{i}", "after")
        await until(lambda: len(record.consumed) == 12, "the items after")
        await f.create("new")
        await f.push("new", "placed through the other replica")
        await until(lambda: record.texts("new") != [], "a new live's item")
        assert len(record.opened) == 7, "nothing was started twice"


async def test_a_worker_told_gone_stops_everything_and_registers_anew(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path) as f:
        await f.start_worker(record, "w1")
        placed = await f.create("a")
        await f.push("a", "one")
        await until_acked(f, "a", 1)
        await f.controllers[0].context.store.set_worker(worker=placed["worker"], verb="exit")
        await until(lambda: ("default/a", placed["epoch"]) in record.closed, "the end of the runtime")
        await until_workers(f, lambda found: [w for w in found if w["worker"] != placed["worker"]], "a new boot")
        status, again = await f.reassign("a")
        assert status == 200 and again["worker"] != placed["worker"]
        await f.push("a", "two")
        await until(lambda: record.texts("a") == ["one", "two"], "the next item")


async def test_a_departing_runtime_counts_until_it_is_gone(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def stubborn(session: Session) -> None:
        async for _ in session.inputs():
            pass
        while not release.is_set():  # It swallows its cancellation, and keeps its memory.
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with fleet(tmp_path) as f:
        await f.start_worker(stubborn, "w1", capacity=1, teardown_s=0.1)
        placed = await f.create("a")
        await until_slots(f, placed["worker"], 1)
        await f.push("a", "x")
        await until_acked(f, "a", 1)
        await f.post(f"{f.dispatch[0]}/v1/lives/a/end")
        await asyncio.sleep(0.5)
        status, problem = await f.post(f"{f.dispatch[0]}/v1/lives", {"live_id": "b", "digital_id": "demo"})
        assert (status, problem["code"]) == (503, "FULL")
        release.set()
        await f.create("b")


async def test_a_worker_can_only_speak_for_itself(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        record = Record()
        await f.start_worker(record, "w1")
        placed = await f.create("a")
        other = await f.controllers[0].context.store.register_worker(name="x", boot="b9", pool="gpu", capacity=1)
        async with puller(f.http, f.infer[0], "forged.token.here") as said:
            assert isinstance(await said.get(), messages.Problem)
        pull = messages.Pull("default/a", placed["epoch"], 0)
        async with puller(f.http, f.infer[0], token(f, other.worker, "b9"), pull) as said:
            assert isinstance(await said.get(), messages.Welcome)
            assert isinstance(await said.get(), messages.Stale)
        async with puller(
            f.http, f.infer[0], token(f, other.worker, "b9"), messages.Open("default/a", placed["epoch"])
        ) as said:
            await said.get()
            assert isinstance(await said.get(), messages.Stale)
        await f.push("a", "still its owner's")
        await until(lambda: len(record.consumed) == 1, "the item")


async def test_lost_hints_cost_nothing(tmp_path: Path, kind: str) -> None:
    """Pub/sub connections are killed all the time: every item arrives, in order."""
    record = Record()
    async with fleet(tmp_path, kind) as f:
        await f.start_worker(record, "w1")
        await f.create("a")
        killing = asyncio.create_task(tell_server(f.address, KILL_PUBSUB, 0.05))
        link, count = f.controllers[0].context.store.link, 0
        try:
            while link.reconnects <= 5 or count < 30:
                status, pushed = await f.push("a", f"t{count}", request_id=f"r{count}")
                assert status == 200, pushed
                count += 1
                await asyncio.sleep(0.01)
        finally:
            killing.cancel()
        await until(lambda: len(set(record.texts("a"))) == count, f"{count} items")
        await until_acked(f, "a", count)
        assert record.texts("a") == [f"t{i}" for i in range(count)]


async def test_a_stale_puller_gets_nothing_while_scripts_are_flushed(tmp_path: Path, kind: str) -> None:
    record = Record()
    async with fleet(tmp_path, kind) as f:
        await f.start_worker(record, "w1")
        await f.start_worker(record, "w2")
        first = await f.create("a")
        await until_slots(f, first["worker"], 1)
        worker = await worker_of(f, first["worker"])
        _, moved = await f.reassign("a")
        flushing = asyncio.create_task(tell_server(f.address, FLUSH_SCRIPTS, 0.05))
        stale = [messages.Pull("default/a", first["epoch"], n) for n in range(50)]
        try:
            async with puller(f.http, f.infer[0], token(f, first["worker"], worker["boot"]), *stale) as said:
                for i in range(50):
                    assert (await f.push("a", f"t{i}"))[0] == 200
                await until(lambda: len(record.consumed) == 50, "50 items at the new owner")
                heard = [said.get_nowait() for _ in range(said.qsize())]
        finally:
            flushing.cancel()
        assert {type(each) for each in heard} == {messages.Welcome, messages.Stale}
        assert {one.epoch for one in record.consumed} == {moved["epoch"]}


async def test_a_slow_reader_holds_back_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A peer that reads nothing answers no heartbeat either, and takes no frame. On a slow machine the pushes below take
    # longer than both limits, and a peer that has been given up would have no outbox left to measure.
    monkeypatch.setattr(pull, "HEARTBEAT_S", 600.0)
    monkeypatch.setattr(outbox, "SEND_MAX_S", 600.0)
    record = Record()
    async with fleet(tmp_path, deadline_s=60) as f:
        store, pulls = f.controllers[0].context.store, f.controllers[0].context.pulls
        slow = await store.register_worker(name="slow", boot="b1", pool="gpu", capacity=200)
        await store.report(worker=slow.worker, boot="b1")
        connection = await f.http.ws_connect(f"{f.infer[0]}/v1/pull")
        await connection.send_bytes(messages.encode([messages.Hello(token(f, slow.worker, "b1"))]))
        lives = [f"s{i}" for i in range(100)]
        for live in lives:
            placed = await f.create(live)
            await connection.send_bytes(messages.encode([messages.Pull(f"default/{live}", placed["epoch"], 0)]))
        await until(lambda: len(pulls) == 100, "100 pulls")
        await f.start_worker(record, "w1")
        transport = connection.get_extra_info("socket") and connection._response.connection
        assert transport is not None and transport.transport is not None
        transport.transport.pause_reading()
        [peer] = [each for each in f.controllers[0].pull_text.peers if each.worker == slow.worker]
        big = "x" * 16_000
        for _ in range(8):
            answers = await asyncio.gather(*(f.push(live, big) for live in lives))
            assert {status for status, _ in answers} == {200}
            await until(lambda: not pulls.releasing, "what was stored to be released or to wait")
        # 13 MB were accepted for it; what lies here in memory is bounded by the outbox and what was under way.
        await until(lambda: peer.outbox.full and len(peer.waiting) > 50, "a full outbox, and pulls that wait for it")
        assert OUTBOX_BYTES_FULL < peer.outbox.waiting_bytes < 4 * OUTBOX_BYTES_FULL
        await store.set_worker(worker=slow.worker, verb="cordon")
        await f.create("quick")
        await f.push("quick", "not held back")
        await until(lambda: record.texts("quick") == ["not held back"], "the quick live's item")
        assert peer in f.controllers[0].pull_text.peers, "the slow one is still connected"


async def test_a_paused_store_loses_nothing(tmp_path: Path, kind: str) -> None:
    record = Record()
    async with fleet(tmp_path, kind, deadline_s=1) as f:
        await f.start_worker(record, "w1")
        await f.create("a")
        assert (await f.push("a", "before"))[0] == 200
        await until(lambda: len(record.consumed) == 1, "the first item")
        with frozen(f.server.pid):
            status, problem = await f.push("a", "during", request_id="r1")
            assert (status, problem["code"]) == (503, "STORE_UNAVAILABLE")
            assert len(record.consumed) == 1, "a controller that is cut off releases nothing"
        for _ in range(100):
            status, _ = await f.push("a", "during", request_id="r1")
            if status == 200:
                break
            await asyncio.sleep(0.1)
        assert (await f.push("a", "after"))[0] == 200
        await until(lambda: len(record.consumed) == 3, "what was accepted")
        assert record.texts("a") == ["before", "during", "after"]


async def test_a_silent_replica_is_left_after_a_second(tmp_path: Path) -> None:
    async def silent(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoclose=False)
        await socket.prepare(request)
        await asyncio.sleep(3600)
        return socket

    app = web.Application()
    app.router.add_get("/v1/workers/link", silent)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with fleet(tmp_path) as f:
            f.dispatch.insert(0, f"http://127.0.0.1:{runner.addresses[0][1]}")
            began = asyncio.get_running_loop().time()
            await f.start_worker(Record(), "w1")
            f.dispatch.pop(0)
            await until_workers(f, lambda found: found, "a registration with the other replica")
            assert asyncio.get_running_loop().time() - began < 30
    finally:
        await runner.cleanup()


# -- helpers


def token(f: Fleet, worker: str, boot: str) -> str:
    return f.controllers[0].pull_text.tokens.issue(Boot(worker, boot, worker.partition("#")[0], "gpu", 1))


async def worker_of(f: Fleet, worker: str) -> dict[str, str]:
    store = f.controllers[0].context.store
    boot = await store.link.call("HGET", store.keys.of("worker", worker), "boot")
    return {"boot": boot.decode()}


async def until_workers(f: Fleet, condition: Callable[[Any], object], what: str) -> None:
    await until_so(lambda: f.get("/v1/workers"), lambda found: condition(found["workers"]), what)


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where connections are killed all the time, waiting is most of what a test would do."""
    monkeypatch.setattr("dhsched.worker.pull_client.BACKOFF_FIRST_S", 0.02)
