"""Small parts of a Worker: beats of a blocked loop, readiness, log lines of threads, a Worker in a block."""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from dhsched.cells.workers import Registration
from dhsched.errors import DhschedError
from dhsched.links.messages import REPORT_S, Source
from dhsched.local.ports import free_port
from dhsched.types import Generation
from dhsched.web.logs import KEEP
from dhsched.worker import embedding, watchdog
from dhsched.worker.embedding import Worker
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.main import ALONE_S, POLL_S, Leaving, OneBoot, run_worker
from dhsched.worker.metrics import SILENT_MAX_S, WorkerStatus, serving_metrics
from dhsched.worker.options import settings_of
from dhsched.worker.session import Session
from dhsched.worker.watchdog import LOG_S, RETRY_S, Beat, Log, Speaker, Watch, Watchdog, decide
from tests.harness.linking import eventually


def test_a_loop_is_blocked_from_the_very_moment_that_is_named() -> None:
    watch, _ = decide(Watch(), now=100.0, turns=1, blocked_max_s=10)
    watch, actions = decide(watch, now=100.0 + LOG_S, turns=1, blocked_max_s=10)
    assert [type(action) for action in actions] == [Log, Beat]
    assert decide(watch, now=100.0 + LOG_S + REPORT_S - 0.01, turns=1, blocked_max_s=10)[1] == []
    [beat] = decide(watch, now=100.0 + LOG_S + REPORT_S, turns=1, blocked_max_s=10)[1]
    assert isinstance(beat, Beat)


class Posts:
    """The replicas' answers to beats: a status each, or an error."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = [*answers]
        self.sent: list[tuple[str, dict[str, object], str]] = []

    def __call__(self, url: str, body: dict[str, object], *, token: str, tls: ssl.SSLContext) -> int:
        self.sent.append((url, body, token))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
async def dog() -> Watchdog:
    made = Watchdog(10.0, cast(Any, None))
    made.speaker = lambda: Speaker("w#1", "token", ["http://d1/", "http://d2"])
    return made


async def test_a_beat_goes_to_the_next_replica_until_one_has_taken_it(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts = Posts(OSError("no route"), 503, 302, 204, 200, 401, 200)
    monkeypatch.setattr(watchdog, "post", posts)
    assert [dog._beat(1.25, "model.py:41 speak", True) for _ in range(7)] == [False] * 3 + [True] * 4
    assert [url.split("/v1")[0] for url, *_ in posts.sent] == [
        *("http://d1", "http://d2", "http://d1", "http://d2"),
        *("http://d1", "http://d1", "http://d1"),
    ]
    url, body, token = posts.sent[0]
    assert url == "http://d1/v1/workers/w%231/blocked" and token == "token"
    assert body == {"blocked_ms": 1250, "frame": "model.py:41 speak", "tell": True}


async def test_a_worker_that_is_not_registered_sends_no_beat(dog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> None:
    posts = Posts()
    monkeypatch.setattr(watchdog, "post", posts)
    dog.speaker = lambda: None
    assert dog._beat(1.0, "", False)
    dog.speaker = lambda: Speaker("w#1", "token", [])
    assert dog._beat(1.0, "", False) and posts.sent == []


async def test_a_beat_that_nobody_took_is_repeated_soon_and_the_event_is_asked_for_once(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "post", Posts(503, 200, 200))
    now = time.monotonic()
    failed = dog._act(Beat(2.0, tell=True), Watch(beat_at=now))
    assert not failed.told and now - REPORT_S + RETRY_S <= failed.beat_at < now
    assert dog._act(Beat(2.0, tell=True), Watch()).told
    assert not dog._act(Beat(2.0, tell=False), Watch()).told


async def test_a_blocked_loop_is_spoken_for_from_the_thread(dog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> None:
    posts = Posts(*[200] * 100)
    monkeypatch.setattr(watchdog, "post", posts)
    monkeypatch.setattr(watchdog, "LOG_S", 0.0)
    monkeypatch.setattr(watchdog, "TICK_S", 0.005)
    dog.start()
    try:
        waited = threading.Event()
        while not posts.sent:
            waited.wait(0.01)  # The loop is blocked: nothing of it turns meanwhile.
    finally:
        dog.stop()
    assert "waited.wait" not in str(posts.sent[0]) and "test_worker_parts.py" in str(posts.sent[0][1]["frame"])
    assert not dog._thread.is_alive()


async def test_why_a_worker_takes_no_lives() -> None:
    boot = SimpleNamespace(worker_id="", silent_s=0.0)
    status = WorkerStatus(cast(Any, None))
    assert await status.missing() == ["its setup is not done"]
    status.boot = cast(Any, boot)
    assert await status.missing() == ["Dispatch has not registered it"]
    boot.worker_id, boot.silent_s = "w#1", SILENT_MAX_S
    assert await status.missing() == []
    boot.silent_s = SILENT_MAX_S + 1
    assert await status.missing() == ["no Dispatch replica has answered for 11 s"]


async def test_lines_of_a_runtime_s_threads_are_kept_on_its_loop() -> None:
    kept: list[tuple[Source, str | bytes, bool]] = []
    main = threading.get_ident()

    def log(session: Session, source: Source, text: str | bytes) -> None:
        kept.append((source, text, threading.get_ident() == main))

    port = cast(Any, SimpleNamespace(log=log))
    SessionInbox(Session("t/a", Generation("w#1", 1), port)).keep_logs()
    keep: Callable[[str, str], None] = cast(Any, KEEP.get())
    keep("warning", "of the loop")
    assert kept == [("warning", "of the loop", True)], "at once"
    thread = threading.Thread(target=keep, args=("nonsense", "of a thread"))
    thread.start()
    thread.join()
    assert len(kept) == 1
    await eventually(lambda: len(kept) == 2)
    assert kept[1] == ("info", "of a thread", True)


class Running:
    """In the place of `run_worker`: a Worker that does what the test says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leaving: Leaving | None = None
        self.on_registered: Callable[[str], None] = lambda worker: None
        self.sets_up = True
        self.ended = False
        patch.setattr(embedding, "run_worker", self.run)

    async def run(self, settings: Any, runtime: Any, leaving: Leaving, **given: Any) -> None:
        self.leaving, self.on_registered = leaving, given["on_registered"]
        if self.sets_up:
            given["on_set_up"]()
        stop = asyncio.ensure_future(leaving.requested.wait())
        try:
            await asyncio.wait((self.ends, stop), return_when=asyncio.FIRST_COMPLETED)
            if self.ends.done():
                self.ends.result()
        finally:
            stop.cancel()
            self.ended = True


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> Running:
    return Running(monkeypatch)


async def nothing(session: Session) -> None: ...


def worker() -> Worker:
    return Worker(nothing, pool="gpu", capacity=1)


async def test_a_block_that_is_left_drains_its_worker(running: Running) -> None:
    async with worker() as entered:
        waiting = asyncio.ensure_future(entered.registered())
        await asyncio.sleep(0)
        assert not waiting.done()
        running.on_registered("w#1")
        running.on_registered("w#2")
        assert await waiting == "w#1", "the first registration is meant"
    assert running.leaving is not None and running.ended
    assert running.leaving.requested.is_set() and not running.leaving.at_once.is_set()


async def test_a_block_that_fails_stops_its_worker_at_once(running: Running) -> None:
    with pytest.raises(LookupError):
        async with worker():
            raise LookupError
    assert running.leaving is not None and running.leaving.at_once.is_set() and running.ended


async def test_a_worker_that_fails_cancels_the_block_and_its_error_is_raised(running: Running) -> None:
    with pytest.raises(DhschedError, match="no device"):
        async with worker() as entered:
            running.ends.set_exception(DhschedError("no device"))
            await asyncio.wait_for(asyncio.Event().wait(), 60)
    with pytest.raises(DhschedError, match="before it was registered"):
        await entered.registered()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0, "nothing is left of the cancellation"


async def test_a_worker_that_ends_by_itself_cancels_nothing(running: Running) -> None:
    async with worker() as entered:
        running.ends.set_result(None)
        await eventually(lambda: running.ended)
        with pytest.raises(DhschedError, match="before it was registered"):
            await entered.registered()


async def test_a_worker_that_fails_while_the_block_is_left_raises_its_error(running: Running) -> None:
    with pytest.raises(DhschedError, match="late"):
        async with worker() as entered:
            entered.stop()
            running.ends.set_exception(DhschedError("late"))
    assert running.ended


async def test_an_error_of_the_setup_is_raised_where_the_block_is_entered(running: Running) -> None:
    running.sets_up = False
    running.ends.set_exception(DhschedError("the setup failed"))
    with pytest.raises(DhschedError, match="the setup failed"):
        async with worker():
            raise AssertionError("the block was entered")


async def test_pauses_are_measured_as_long_as_metrics_are_served() -> None:
    devices = cast(Any, SimpleNamespace(runtimes={"gpu0": 2}, crashes={"gpu0": 1}, late_s={"gpu0": 0.5}))
    settings = settings_of({"pool": "gpu", "capacity": 3, "name": "w", "metrics_port": free_port()})
    before = len(gc.callbacks)
    async with serving_metrics(settings, WorkerStatus(devices)), aiohttp.ClientSession() as http:
        assert len(gc.callbacks) == before + 1
        async with http.get(f"http://127.0.0.1:{settings.metrics_port}/metrics") as response:
            text = await response.text()
        assert 'dhsched_worker_device_runtimes{device="gpu0"} 2.0' in text and "dhsched_worker_capacity 3.0" in text
        async with http.get(f"http://127.0.0.1:{settings.metrics_port}/readyz") as response:
            assert response.status == 503 and "its setup is not done" in await response.text()
    assert len(gc.callbacks) == before


class Dispatch:
    """In the place of the link and the agent of one boot: lives move away when the test says so."""

    def __init__(self) -> None:
        self.mode, self.silent_s, self.runtimes = "ready", 0.0, 1
        self.rules = SimpleNamespace(table={"default/a@1": "running"})
        self.drains: list[float] = []
        self.told: list[str] = []
        self.over = asyncio.Event()
        self.going, self.goes_to, self.worker = asyncio.Event(), "", "w#1"

    async def run(self) -> None:
        await self.over.wait()
        await asyncio.sleep(0.01)
        self.told.append("recorded")

    def drain(self, deadline_s: float) -> None:
        self.drains.append(deadline_s)

    def exit(self) -> None:
        self.told.append("exit")
        self.over.set()

    def stop_all(self) -> None:
        self.told.append("stop")

    async def stopped(self) -> None: ...

    async def close(self) -> None:
        self.told.append("closed")

    def boot(self, drain_s: float = 60.0) -> OneBoot:
        made = object.__new__(OneBoot)
        made._link = made._agent = made._pulls = cast(Any, self)
        made._boot = cast(Any, SimpleNamespace(worker="w#1"))
        made._settings = cast(Any, SimpleNamespace(drain_s=drain_s))
        return made


async def test_a_worker_that_leaves_drains_stops_and_waits_until_its_exit_is_recorded() -> None:
    dispatch, leave = Dispatch(), Leaving()
    running = asyncio.ensure_future(dispatch.boot().run(leave))
    await asyncio.sleep(0)
    assert dispatch.drains == []
    leave.requested.set()
    await eventually(lambda: dispatch.drains)
    assert 0 < dispatch.drains[0] < 60 and dispatch.told == []
    dispatch.mode, dispatch.runtimes = "draining", 0
    dispatch.rules.table.clear()
    await asyncio.wait_for(running, 60)
    assert dispatch.told == ["stop", "exit", "recorded", "closed"]


async def test_a_drain_ends_when_its_time_is_over_or_at_once() -> None:
    for drain_s, at_once in ((0.0, False), (60.0, True)):
        dispatch, leave = Dispatch(), Leaving()
        leave.requested.set()
        if at_once:
            leave.at_once.set()
        await asyncio.wait_for(dispatch.boot(drain_s).run(leave), 60)
        assert dispatch.told[0] == "stop", "although a runtime was left"


async def test_a_boot_that_is_gone_stops_its_runtimes_and_does_not_exit() -> None:
    dispatch = Dispatch()
    dispatch.over.set()
    await asyncio.wait_for(dispatch.boot().run(Leaving()), 60)
    assert dispatch.told == ["recorded", "stop", "closed"] and dispatch.drains == []


async def test_a_worker_that_is_sent_to_another_cell_exits_once_it_is_empty() -> None:
    dispatch = Dispatch()
    running = asyncio.ensure_future(dispatch.boot().run(Leaving()))
    dispatch.goes_to = "b"
    dispatch.going.set()
    await asyncio.sleep(POLL_S * 2)
    assert dispatch.told == [], "a runtime is left"
    dispatch.runtimes = 0
    dispatch.rules.table.clear()
    assert await asyncio.wait_for(running, 60) == "b"
    assert dispatch.told == ["stop", "exit", "recorded", "closed"] and dispatch.drains == []


async def test_a_worker_that_is_not_sent_away_any_more_stays() -> None:
    dispatch, leave = Dispatch(), Leaving()
    running = asyncio.ensure_future(dispatch.boot().run(leave))
    dispatch.goes_to = "b"
    dispatch.going.set()
    await asyncio.sleep(POLL_S * 2)
    dispatch.going.clear()
    await asyncio.sleep(POLL_S * 2)
    dispatch.runtimes = 0
    dispatch.rules.table.clear()
    await asyncio.sleep(POLL_S * 2)
    assert dispatch.told == [] and not running.done()
    dispatch.mode = "draining"
    leave.requested.set()
    assert await asyncio.wait_for(running, 60) == ""
    assert dispatch.drains and dispatch.told == ["stop", "exit", "recorded", "closed"]


async def test_when_a_worker_is_drained() -> None:
    dispatch = Dispatch()
    boot = dispatch.boot()
    assert not boot._drained()
    dispatch.runtimes = 0
    assert not boot._drained(), "Dispatch may place one here still"
    dispatch.mode = "draining"
    assert not boot._drained(), "one is about to begin"
    dispatch.rules.table.clear()
    assert boot._drained()
    dispatch.mode = "ready"
    assert not boot._drained()
    dispatch.silent_s = ALONE_S
    assert boot._drained(), "nobody is there to tell"


async def test_a_worker_that_was_moved_does_not_go_back_to_the_cell_of_its_settings_with_its_next_boot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Dispatch ends a boot that was silent too long; a start is another thing."""
    leave = Leaving()
    ends = ["", "b", ""]
    boots: list[tuple[str, Registration | None]] = []

    async def run(boot: OneBoot, _leave: Leaving) -> str:
        boots.append((boot._boot.wanted_cell, boot._boot.last))
        cell = boot._boot.wanted_cell or "b"
        boot._devices.remember(Registration(cell, f"w#{len(boots)}"))
        if not ends:
            leave.requested.set()
        return ends.pop(0) if ends else ""

    monkeypatch.setattr(OneBoot, "run", run)
    given: Any = {"pool": "gpu", "capacity": 3, "name": "w", "cell": "a", "lock_folder": tmp_path}
    await run_worker(settings_of(given), cast(Any, None), leave)
    assert boots == [
        ("a", None),
        ("a", Registration("a", "w#1")),
        ("", Registration("b", "")),
        ("", Registration("b", "w#3")),
    ]
