"""The parts of the input benchmark's peers that need no server: what shares a pipeline, and what the Worker prints."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dhsched.bench.ends import stamp
from dhsched.bench.input import PEERS, Figures, described
from dhsched.bench.input_peers import PATHS, worker
from dhsched.bench.peer_clients import BATCH, Gather
from dhsched.bench.peer_clients import PEERS as CLIENTS
from dhsched.local.waiting import until


class Pipelines:
    """Records pipelines, of which each waits for `go`."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.go = asyncio.Semaphore(0)

    async def send(self, items: list[int]) -> list[int]:
        self.sent.append(items)
        await self.go.acquire()
        if 13 in items:
            raise OSError("lost")
        return [item * 10 for item in items]


async def test_items_that_arrive_during_a_pipeline_share_the_next_one_in_order() -> None:
    pipelines = Pipelines()
    gather = Gather(pipelines.send, most=4)
    puts = [asyncio.create_task(gather.put(items)) for items in ([1], [2], [3, 4], [5, 6], [], [7, 8, 9, 10, 11])]
    for _ in puts:
        await asyncio.sleep(0)
        pipelines.go.release()
    assert await asyncio.gather(*puts) == [[10], [20], [30, 40], [50, 60], [], [70, 80, 90, 100, 110]]
    # All were put before the first pipeline began; the last `put` is larger than a pipeline and is not divided.
    assert pipelines.sent == [[1, 2, 3, 4], [5, 6], [7, 8, 9, 10, 11]]
    pipelines.go.release()
    assert await gather.put([12]) == [120]


async def test_an_error_of_a_pipeline_is_raised_to_those_in_it_and_the_next_is_sent() -> None:
    pipelines = Pipelines()
    gather = Gather(pipelines.send, most=2)
    puts = [asyncio.create_task(gather.put(items)) for items in ([1], [13], [2])]
    pipelines.go = asyncio.Semaphore(9)
    first, second, third = await asyncio.gather(*puts, return_exceptions=True)
    assert isinstance(first, OSError) and isinstance(second, OSError) and third == [20]


@pytest.mark.parametrize("count", [BATCH - 1, BATCH, BATCH + 1])
async def test_a_worker_tells_that_it_consumed_a_batch_of_any_size(
    capfd: pytest.CaptureFixture[str], count: int
) -> None:
    """The last batch of a run may be a full one, and nothing comes after it."""
    tickets: list[str] = []

    async def pull(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(msgspec.msgpack.encode(("ticket", [stamp()] * count)))
        async for message in socket:
            tickets.append(msgspec.msgpack.decode(message.data))
        return socket

    app = web.Application()
    app.router.add_get("/pull", pull)
    printed = ""

    def consumed() -> bool:
        nonlocal printed
        printed += capfd.readouterr().out
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        return any(line["consumed"] == count for line in lines)

    async with TestServer(app) as server:
        working = asyncio.create_task(worker(str(server.make_url("")).rstrip("/")))
        await until(consumed, "the line of the last batch", 30.0, every_s=0.01)
        await until(lambda: tickets == ["ticket"], "the ack", 30.0, every_s=0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def test_every_peer_has_its_ratio_and_its_cpu_beside_ours() -> None:
    ours, theirs = Figures(3000.0, 20.0, 10.0, 1.0, 2.0, 3.0), Figures(1000.0, 40.0, 30.0, 2.0, 3.0, 4.0)
    rounds = {"ours": [ours], "unfenced": [ours], **{name: [theirs] for name in PEERS}}
    result = described(rounds)
    assert set(PATHS) == set(CLIENTS) == set(PEERS) == {"redispy_pipelined", "same_job", "nats"}
    for name in PEERS:
        assert result[f"ratio_vs_{name}"] == 3.0 and result[f"p50_vs_{name}"] == 0.5
        assert (result[f"{name}_store_us_per_item"], result[f"{name}_controller_us_per_item"]) == (40.0, 30.0)


def test_a_run_too_short_to_measure_cpu_time_has_figures_without_ratios_of_it() -> None:
    short = Figures(items_per_s=100.0, store_us=0.0, middle_us=0.0, p50_ms=1.0, p99_ms=2.0, push_p99_ms=2.0)
    result = described({"ours": [short], "unfenced": [short]})
    assert result["fence_cost"] is None
    assert (result["items_per_s"], result["store_us_per_item"]) == (100, 0.0)
