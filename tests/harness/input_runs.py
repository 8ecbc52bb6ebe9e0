"""Faults of the input path as seeded functions over one deployment of processes.

Each makes its lives, does its harm at moments of its seed's choice, and leaves when all that was accepted is acked.
What holds of every run is checked by `Run.check`; what is special to one, here.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from dhsched.links import messages
from dhsched.links.outbox import OUTBOX_BYTES_FULL
from dhsched.local.pids import frozen
from dhsched.ownership.items import mark_of
from dhsched.tokens import Boot
from tests.harness.one_run import Run
from tests.harness.pullers import FLUSH_SCRIPTS, KILL_PUBSUB, puller, tell_server

LIVES_MAX = 4
SLOW_BYTES = 13_000_000
SLOW_TEXT = "x" * 16_000
PAUSE_S = 10.0
PAUSE_SHORT_S = 2.0


async def a_zombie_after_a_b_a(run: Run) -> None:
    """A freezes; its lives go to B and back to the same boot of A. Thawed, its first runtimes get nothing new."""
    a, b = await run.rig.workers(2)
    lives = [await run.create(on=a) for _ in range(run.rng.randint(1, LIVES_MAX))]
    for live in lives:
        await run.push_some(live, "first", 4)
        await run.until_consumed(live)
    await run.rig.reports(a)
    with frozen(a.process.pid):
        for live in lives:
            await run.push_some(live, "granted at most", run.rig.credit + 2)
        await run.pause(0.5)
        for live in lives:
            moved = await run.move(live, b)
            await run.push_some(live, "on b", 4)
            await run.until_consumed(live, epoch=moved)
        await run.pause(0.5)
        for live in lives:
            await run.move(live, a)
            await run.push_some(live, "back on a", 4)
        await run.pause(0.5)
    for live in lives:
        await run.push_some(live, "thawed", 4)
    await run.settle()
    for live in lives:
        back = max(fence.epoch for fence in run.fences if fence.live == live)
        assert {epoch for epoch, _, text in run.consumed(live) if text.startswith("thawed")} == {back}


async def two_workers_under_one_name(run: Run) -> None:
    """They are two Workers. One is killed: the other's lives notice nothing, and the lives of the first come back."""
    name = f"twin-{run.name}"
    one = await run.rig.start_worker(name, f"{name}-gpu0")
    two = await run.rig.start_worker(name, f"{name}-gpu1")
    await run.rig.ready([one, two])
    assert one.id != two.id and one.id.partition("#")[0] == two.id.partition("#")[0] == name
    ones = [await run.create(on=one) for _ in range(run.rng.randint(1, 3))]
    twos = [await run.create(on=two) for _ in range(run.rng.randint(1, 3))]
    for live in ones + twos:
        await run.push_some(live, "before", 4)
        await run.until_consumed(live)
    if run.rng.random() < 0.3:  # A third one on a device that is taken is refused.
        third = await run.rig.start_worker(name, f"{name}-gpu0")
        assert await third.process.ended() == 1
    opened = {live: two.process.opened(live) for live in twos}
    await run.pause(0.3)
    one.process.kill()
    await one.process.ended()
    for live in ones + twos:
        await run.push_some(live, "after", 4)
    await run.settle()
    assert {live: two.process.opened(live) for live in twos} == opened, "the other twin's lives went on where they were"
    two.process.signal(signal.SIGTERM)  # It is empty as soon as its lives have ended.


async def a_kill_between_consume_and_ack(run: Run) -> None:
    """What was consumed and not acked comes again, first, to a runtime with the state of the last ack."""
    [a] = await run.rig.workers(1)
    lives = [await run.create(on=a) for _ in range(run.rng.randint(1, LIVES_MAX))]
    hanging: dict[str, tuple[int, int, str]] = {}
    for live in lives:
        await run.push_some(live, "fine", 4)
        epoch = (await run.at(live))["epoch"]
        before = run.last(live)[1]
        await run.push(live, f"hang in {epoch}")
        hanging[live] = (epoch, len(run.accepted[live]), before)
        await run.until_consumed(live, epoch=epoch)
        await run.push_some(live, "next", 4)
    for live, (_, seq, _) in hanging.items():
        await run.until_acked(live, seq - 1)
    await run.pause(0.5)
    a.process.kill()
    await a.process.ended()
    if run.rng.random() < 0.5:  # On the same device, the next boot says whom it replaces; else somebody finds out.
        again = await run.rig.start_worker(a.name)
        await run.rig.ready([again])
    else:
        await run.rig.workers(1)
    await run.settle()
    for live, (epoch, seq, before) in hanging.items():
        first = min(one for one in run.consumed(live) if one[0] > epoch)
        assert first[1] == seq, f"{live}: {epoch} hung at {seq}; the next generation began with {first}"
        states = [
            line["state"]
            for worker in run.rig.all
            for line in worker.process.lines
            if line.get("event") == "open" and line["live"] == f"default/{live}" and line["epoch"] == first[0]
        ]
        assert states == [f"after {before}"], "the state saved at the last ack"


async def half_open_connections(run: Run) -> None:
    """Connections that look alive and bring nothing, or bring late what was on its way; also a frozen controller."""
    rig, rng = run.rig, run.rng
    [a] = await rig.workers(1)
    lives = [await run.create(on=a) for _ in range(rng.randint(2, LIVES_MAX))]
    for live in lives:
        await run.push(live, "before")
        await run.until_consumed(live)
    rounds = [False, True] if run.short else [rng.random() < 0.3 for _ in range(rng.randint(1, 3))]
    for round_no, freezes in enumerate(rounds):
        hurt = rng.randrange(2)
        harm = freeze_for(rig.controllers[hurt].pid, rng.uniform(1, 4)) if freezes else half_open(run, hurt)
        harming = asyncio.create_task(harm)
        try:
            for _ in range(rng.randint(1, 4)):
                for live in lives:
                    await run.push_some(live, f"round {round_no}", 3, by=1 - hurt)
                await run.pause(0.3)
        finally:
            await harming
    await run.settle()
    for live in lives:
        assert len({epoch for epoch, _, _ in run.consumed(live)}) == 1, "a connection is no reason for a generation"


async def lost_hints(run: Run) -> None:
    """Pub/sub connections are killed in a loop: every item arrives."""
    [a] = await run.rig.workers(1)
    lives = [await run.create(on=a) for _ in range(run.rng.randint(1, LIVES_MAX))]
    async with told_all_the_time(run, KILL_PUBSUB):
        for i in range(20):
            for live in lives:
                await run.push(live, f"t{i}")
            await run.pause(0.05)
    await run.settle()


async def forgotten_scripts_and_a_stale_puller(run: Run) -> None:
    """SCRIPT FLUSH every 50 ms, and a socket that shows the old Worker's token: it gets nothing."""
    a, b = await run.rig.workers(2)
    live = await run.create(on=a)
    await run.push_some(live, "first", 4)
    await run.until_consumed(live)
    old = (await run.at(live))["epoch"]
    moved = await run.move(live, b)
    pulls = [messages.Pull(f"default/{live}", old, n) for n in range(run.rng.randint(10, 50))]
    infer, token = run.rng.choice(run.rig.infer), await run.rig.token(a.id)
    async with told_all_the_time(run, FLUSH_SCRIPTS), puller(run.rig.http, infer, token, *pulls) as said:
        for i in range(run.rng.randint(10, 40)):
            await run.push(live, f"t{i}")
            await run.pause(0.03)
        await run.until_consumed(live, epoch=moved)
        heard = {type(said.get_nowait()) for _ in range(said.qsize())}
        assert heard == {messages.Welcome, messages.Stale}, heard
    await run.settle()


async def a_slow_reader(run: Run) -> None:
    """A Worker that stops reading holds back only itself: the controller's memory stays flat, others are served."""
    rig, rng = run.rig, run.rng
    [a] = await rig.workers(1)
    quick = await run.create(on=a)
    infer = rng.randrange(2)
    slow = await rig.store.register_worker(name=f"slow-{run.name}", boot=run.name, pool="slow", capacity=1_000)
    await rig.store.report(worker=slow.worker, boot=run.name)
    per_live = min(rig.credit, 8)
    count = SLOW_BYTES // (per_live * len(SLOW_TEXT))
    try:
        async with rig.http.ws_connect(f"{rig.infer[infer]}/v1/pull") as socket:
            token = rig.tokens.issue(Boot(slow.worker, run.name, f"slow-{run.name}", "slow", 1_000))
            await socket.send_bytes(messages.encode([messages.Hello(token)]))
            lives = []
            for _ in range(count):
                live = await run.create(digital_id="slow")
                epoch = (await run.at(live))["epoch"]
                await socket.send_bytes(messages.encode([messages.Pull(f"default/{live}", epoch, 0)]))
                lives.append(live)
            await until_held(run, infer, count)
            connection = socket._response.connection
            assert connection is not None and connection.transport is not None
            connection.transport.pause_reading()
            # What a controller needs for so many pushes at once is no matter of who reads: it has it before we look.
            await push_all(run, lives, infer)
            before = rig.controllers[infer].memory_bytes
            for _ in range(per_live - 1):
                await push_all(run, lives, infer)
            grown = rig.controllers[infer].memory_bytes - before
            assert grown < 6 * OUTBOX_BYTES_FULL, f"{SLOW_BYTES} bytes were accepted, and {grown} are in memory"
            await run.push_some(quick, "not held back", 4, by=infer)
            await run.until_consumed(quick)
            connection.transport.resume_reading()
            await read_in_order(socket, dict.fromkeys(lives, per_live))
        await run.settle([quick])
    finally:
        await run.end()
        await rig.store.set_worker(worker=slow.worker, verb="exit")


async def a_paused_store(run: Run) -> None:
    """The server stands still: pushes fail by their deadline, nothing is released, everything accepted arrives."""
    rig = run.rig
    [a] = await rig.workers(1)
    lives = [await run.create(on=a) for _ in range(run.rng.randint(1, LIVES_MAX))]
    for live in lives:
        await run.push_some(live, "before", 4)
        await run.until_acked(live)
    consumed = {live: len(run.consumed(live)) for live in lives}
    bodies = {live: {"text": "during", "request_id": f"{run.name}-{live}-during"} for live in lives}
    urls = {live: f"{run.rng.choice(rig.infer)}/v1/lives/{live}/text" for live in lives}
    with frozen(rig.server.pid):
        thaw = asyncio.create_task(asyncio.sleep(PAUSE_SHORT_S if run.short else PAUSE_S))
        for status, said in await asyncio.gather(*(rig.call("POST", urls[live], bodies[live]) for live in lives)):
            assert (status, said["code"]) == (503, "STORE_UNAVAILABLE"), said
        await thaw
        assert {live: len(run.consumed(live)) for live in lives} == consumed, "cut off, a controller releases nothing"
    for live in lives:
        for _ in range(100):  # The same item: whether it was stored in the end or not, it is there once.
            status, said = await rig.call("POST", urls[live], bodies[live])
            if status == 200:
                break
            await asyncio.sleep(0.1)
        assert status == 200, said
        run.accepted[live].append("during")
        await run.push_some(live, "after", 4)
    await run.settle()


Fault = Callable[[Run], Awaitable[None]]
FAULTS: tuple[Fault, ...] = (
    *(a_zombie_after_a_b_a, two_workers_under_one_name, a_kill_between_consume_and_ack, half_open_connections),
    *(lost_hints, forgotten_scripts_and_a_stale_puller, a_slow_reader, a_paused_store),
)


# -- harm


async def freeze_for(pid: int, seconds: float) -> None:
    with frozen(pid):
        await asyncio.sleep(seconds)


async def half_open(run: Run, controller: int) -> None:
    for _ in range(run.rng.randint(1, 3)):
        await run.rig.proxies[controller].half_open(run.rng.uniform(0.1, 1.5))


@asynccontextmanager
async def told_all_the_time(run: Run, command: bytes) -> AsyncIterator[None]:
    telling = asyncio.create_task(tell_server(run.rig.server.address, command, 0.05))
    try:
        yield
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling


# -- the slow reader


async def push_all(run: Run, lives: list[str], infer: int) -> None:
    for at in range(0, len(lives), 25):
        await asyncio.gather(*(run.push(live, SLOW_TEXT, by=infer) for live in lives[at : at + 25]))


async def until_held(run: Run, infer: int, count: int) -> None:
    for _ in range(300):
        async with run.rig.http.get(f"{run.rig.infer[infer]}/metrics") as response:
            lines = (await response.text()).splitlines()
        held = next(float(line.split()[-1]) for line in lines if line.startswith("dhsched_pulls_granted"))
        if held >= count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{held} of {count} pulls are held")


async def read_in_order(socket: Any, wanted: dict[str, int]) -> None:
    """Everything within the credit, each live from its first item on. It is acked, so that the run can settle."""
    got: dict[str, int] = defaultdict(int)
    async with asyncio.timeout(60):
        while any(got[live] < count for live, count in wanted.items()):
            acks: list[messages.Message] = []
            for said in messages.read_infer_says(await socket.receive_bytes()):
                if isinstance(said, messages.Items):
                    live = said.live.removeprefix("default/")
                    assert said.first == got[live] + 1, (said.live, said.first, got[live])
                    got[live] += len(said.items)
                    acks.append(messages.Ack(said.live, said.epoch, got[live], None, mark_of(said.items[-1])))
            if acks:
                await socket.send_bytes(messages.encode(acks))
