"""The input benchmark: every peer carries all items, the same-job peer has a fence, and a kill leaves no process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dhsched.bench.input import PEERS, Size, bench_input
from dhsched.bench.input_peers import nats_server
from dhsched.bench.peer_clients import CREDIT, Bare, Nats, Peer, Push, SameJob
from dhsched.local.pids import alive
from dhsched.local.waiting import until
from dhsched.store.server.embedded import Embedded

pytestmark = pytest.mark.release

WAIT_S = 60.0


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with Embedded(appendfsync="no") as server:
        yield server.address.url()


async def consume(peer: Peer, count: int) -> list[bytes]:
    """Fetch and ack batches until `count` items have come, and return them."""
    items: list[bytes] = []
    async with asyncio.timeout(WAIT_S):
        while len(items) < count:
            batch = await peer.fetch()
            if batch.items:
                items += batch.items
                await peer.ack(batch.ticket)
    return items


def pushes(lives: list[str], first: int, last: int) -> list[Push]:
    return [Push(live, n, f"{live} {n}".encode()) for n in range(first, last + 1) for live in lives]


async def carries_everything_in_order(peer: Peer, lives: list[str]) -> None:
    frames = [pushes(lives, n, n + 9) for n in range(1, 41, 10)]
    consuming = asyncio.create_task(consume(peer, 40 * len(lives)))
    await asyncio.gather(*(peer.push(frame) for frame in frames))
    items = await consuming
    for live in lives:
        mine = [item for item in items if item.startswith(f"{live} ".encode())]
        assert mine == [f"{live} {n}".encode() for n in range(1, 41)]
    await peer.close()


async def test_the_bare_peer_carries_all_items_of_a_live_in_order(url: str) -> None:
    lives = [f"l{n}" for n in range(10)]
    await carries_everything_in_order(await Bare.open(url, lives), lives)


async def test_the_same_job_peer_carries_all_items_of_a_live_in_order_and_keeps_none(url: str) -> None:
    lives = [f"l{n}" for n in range(10)]
    await carries_everything_in_order(await SameJob.open(url, lives), lives)
    import redis.asyncio as redis

    async with redis.Redis.from_url(url) as client:
        assert await client.keys("queue:*") == []  # Consumed items are removed, and an empty list is no key.


async def test_the_nats_peer_carries_all_items_in_order() -> None:
    async with nats_server() as (url, _pid, name):
        assert name.startswith("nats-server 2.")
        lives = [f"l{n}" for n in range(10)]
        await carries_everything_in_order(await Nats.open(url, lives), lives)


async def test_the_same_job_peer_stores_an_item_once(url: str) -> None:
    peer = await SameJob.open(url, ["l0", "l1"])
    await peer.push(pushes(["l0", "l1"], 1, 3))
    await peer.push([*pushes(["l0"], 1, 4), *pushes(["l1"], 3, 3)])
    assert peer.duplicates == 4
    items = await consume(peer, 7)
    assert sorted(items) == [b"l0 1", b"l0 2", b"l0 3", b"l0 4", b"l1 1", b"l1 2", b"l1 3"]
    assert (await peer.fetch()).items == []
    await peer.close()


async def test_the_same_job_peer_refuses_an_owner_that_was_replaced(url: str) -> None:
    old = await SameJob.open(url, ["l0"], owner="old")
    await old.push(pushes(["l0"], 1, 2))
    taken = await old.fetch()
    assert taken.items == [b"l0 1", b"l0 2"]

    new = await SameJob.open(url, ["l0"], owner="new")
    await old.ack(taken.ticket)  # Refused: otherwise the new owner would miss what the old one did not finish.
    assert old.refused == {"l0"}
    again = await new.fetch()
    assert again.items == [b"l0 1", b"l0 2"] and new.refused == set()
    await new.ack(again.ticket)
    await new.ack(again.ticket)  # An ack that is repeated removes nothing more.
    await new.push(pushes(["l0"], 3, 3))
    assert await consume(new, 1) == [b"l0 3"]
    await old.close()
    await new.close()


async def test_the_same_job_peer_refuses_a_take_of_an_owner_that_was_replaced(url: str) -> None:
    old = await SameJob.open(url, ["l0"], owner="old")
    await old.push(pushes(["l0"], 1, 1))  # Announces the live to the old owner.
    new = await SameJob.open(url, ["l0"], owner="new")
    assert (await old.fetch()).items == [] and old.refused == {"l0"}
    assert await consume(new, 1) == [b"l0 1"]
    await old.close()
    await new.close()


async def test_the_same_job_peer_hands_out_a_few_items_of_a_live_at_a_time(url: str) -> None:
    peer = await SameJob.open(url, ["l0"])
    await peer.push(pushes(["l0"], 1, CREDIT + 3))
    first = await peer.fetch()
    assert len(first.items) == CREDIT
    assert (await peer.fetch()).items == []
    await peer.ack(first.ticket)
    assert len((await peer.fetch()).items) == 3
    await peer.close()


async def test_the_benchmark_measures_every_peer_in_one_run() -> None:
    """2,000 items per round are full batches, with nothing after them."""
    size = Size(lives=20, items=2_000, rate=500, paced_s=0.2, rounds=1)
    result = await bench_input(size, lambda _line: None)
    assert result["server"].split()[0] in ("valkey", "redis")
    for name in PEERS:
        assert result[f"ratio_vs_{name}"] > 0 and result[f"{name}_items_per_s"] > 0
        assert result[f"{name}_controller_us_per_item"] > 0
        assert result[f"{name}_server"].split()[0] in ("valkey", "redis", "nats-server")


PEERS_RUNNING = """
import asyncio
from dhsched.bench.input import Size
from dhsched.bench.input_peers import PATHS

async def main():
    async with PATHS["same_job"](Size(lives=2)), PATHS["nats"](Size(lives=2)):
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_benchmark_that_is_killed_leaves_no_process(number: int) -> None:
    bench = await asyncio.create_subprocess_exec(sys.executable, "-c", PEERS_RUNNING, stdout=asyncio.subprocess.PIPE)
    try:
        assert bench.stdout is not None
        async with asyncio.timeout(2 * WAIT_S):
            assert await bench.stdout.readline() == b"ready\n"
        started = descendants(bench.pid)
        assert len(started) == 8  # For each peer a guardian, its server, a front and a Worker.
        bench.send_signal(number)
        await bench.wait()
        await until(lambda: not any(map(alive, started)), "every process to end", WAIT_S)
    finally:
        if bench.returncode is None:
            bench.kill()


def descendants(pid: int) -> list[int]:
    """Return the processes that this one has started, and those that they have started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # A process that has ended meanwhile.
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, unread = [], [pid]
    while unread:
        parent = unread.pop()
        children = [child for child, its_parent in parents.items() if its_parent == parent]
        found += children
        unread += children
    return found
