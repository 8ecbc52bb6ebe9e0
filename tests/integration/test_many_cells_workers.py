"""Workers among several cells: where they register, where they come back to, what another cell refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from dhsched.links import messages
from tests.harness.fleet import PATIENCE_S, Record, until, until_so
from tests.harness.many_cells import AB, CellFleet, cell_fleet

T = TypeVar("T")


async def ready_in(f: CellFleet, **wanted: int) -> dict[str, Any]:
    """Wait until so many Workers of each cell are ready, in every replica's view."""
    for at in range(len(f.dispatch)):

        async def counted(at: int = at) -> dict[str, Any]:
            cells = await f.cells_of(at)
            return {name: cells[name]["capacity"] and cells[name]["workers"] for name in wanted}

        await until_so(counted, lambda found: found == wanted, f"Workers {wanted}")
    return wanted


def lock_of(folder: Path, name: str) -> str:
    return (folder / f"{name}.lock").read_text()


async def cell_of_worker(f: CellFleet, name: str) -> str:
    """Wait for a Worker of this name that is ready, and return its cell."""

    async def named() -> list[Any]:
        rows = (await f.get("/v1/workers"))["workers"]
        return [row for row in rows if row["worker"].startswith(f"{name}#") and row["status"] == "ready"]

    [row] = await until_so(named, lambda rows: len(rows) == 1, f"Worker {name}")
    return str(row["cell"])


async def test_workers_register_where_least_is_free_and_write_down_where(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path) as f:
        record = Record()
        await f.start_worker(record, "w1", capacity=2)
        first = await cell_of_worker(f, "w1")
        await ready_in(f, **{first: 1})
        await f.start_worker(record, "w2", capacity=2)
        second = await cell_of_worker(f, "w2")
        assert {first, second} == {*AB}, "a cell without a slot comes first"
        await ready_in(f, a=1, b=1)
        for cell, name in ((first, "w1"), (second, "w2")):
            assert lock_of(tmp_path, name) == f"{cell}/{f.worker_id(cell, name)}\n"
        for live in f.ids(second, 2):
            assert (await f.place(live))[0] == 201
        await until_so(f.cells_of, lambda cells: cells[second]["free"] == 0, "the fuller cell in the view")
        await f.start_worker(record, "w3", capacity=2)
        assert await cell_of_worker(f, "w3") == second


async def test_a_worker_of_another_pool_goes_by_the_slots_of_its_own(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0) as f:
        await f.workers("a", 1, capacity=100, pool="cpu", start="cpu")
        await f.workers("b", 1, capacity=2, pool="gpu", start="gpu")
        assert (await f.place(f.ids("b", 1)[0]))[0] == 201
        await until_so(f.cells_of, lambda cells: cells["b"]["free"] == 1, "the live in b")
        await f.start_worker(Record(), "w1")
        assert await cell_of_worker(f, "w1") == "a", "where its Pool has no slot"


async def test_a_worker_comes_back_to_its_cell_unless_another_one_is_named(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path) as f:
        record = Record()
        worker = await f.start_worker(record, "w1", cell="b")
        assert await cell_of_worker(f, "w1") == "b"
        await ready_in(f, b=1)
        await worker.kill()
        worker = await f.start_worker(record, "w1")
        again = f"b/{f.worker_id('b', 'w1', 2)}\n"
        await until(lambda: lock_of(tmp_path, "w1") == again, "its next boot in its cell, although a is empty")
        assert await cell_of_worker(f, "w1") == "b"
        gone = await f.ask("GET", "/v1/workers/" + f.worker_id("b", "w1").replace("#", "%23"))
        assert gone[0] == 404, "the next boot has replaced it at once"
        worker.leave.set()
        await asyncio.wait_for(asyncio.gather(worker.task, return_exceptions=True), PATIENCE_S)
        await f.start_worker(record, "w1", cell="a")
        await until(lambda: lock_of(tmp_path, "w1") == "a/w1#1\n", "its registration in the cell that was named")
        assert await cell_of_worker(f, "w1") == "a"
        await ready_in(f, a=1)
        [live] = f.ids("a", 1)
        assert (await f.create(live))["worker"] == "w1#1"
        assert (await f.push(live, "one"))[0] == 200
        await until(lambda: record.texts(live) == ["one"], "the item in the new cell")


# -- tokens


async def heard(socket: aiohttp.ClientWebSocketResponse, read: Callable[[bytes], Sequence[Any]], kind: type[T]) -> T:
    """The next message of this kind on a link. Others may come before it, or in its frame."""
    while True:
        for said in read((await asyncio.wait_for(socket.receive(), PATIENCE_S)).data):
            if isinstance(said, kind):
                return said


async def test_a_boots_token_is_refused_in_another_cell_on_both_links(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path) as f:
        links, pulls = f"{f.dispatch[0]}/v1/workers/link", f"{f.infer[0]}/v1/pull"
        tokens = {}
        for name in AB:
            async with f.http.ws_connect(f"{links}?cell={name}") as socket:
                await socket.send_bytes(messages.encode([messages.Register("w1", f"boot-{name}", "gpu", 4)]))
                registered = await heard(socket, messages.read_from_dispatch, messages.Registered)
                assert registered.worker == f.worker_id(name, "w1")
                tokens[name] = registered.token
        for mine, other in (("a", "b"), ("b", "a")):
            async with f.http.ws_connect(f"{links}?cell={other}") as socket:
                await socket.send_bytes(messages.encode([messages.Resume(tokens[mine]), messages.Exit()]))
                said = await heard(socket, messages.read_from_dispatch, messages.Problem)
                assert said.code == "UNAUTHORIZED"
                assert f"the token is of cell {mine}, and this is cell {other}" in said.detail
            async with f.http.ws_connect(f"{pulls}?cell={other}") as socket:
                await socket.send_bytes(messages.encode([messages.Hello(tokens[mine])]))
                said = await heard(socket, messages.read_infer_says, messages.Problem)
                assert said.code == "UNAUTHORIZED"
            async with f.http.ws_connect(f"{pulls}?cell={mine}") as socket:
                await socket.send_bytes(messages.encode([messages.Hello(tokens[mine])]))
                await heard(socket, messages.read_infer_says, messages.Welcome)
            async with f.http.ws_connect(f"{links}?cell={mine}") as socket:
                await socket.send_bytes(messages.encode([messages.Resume(tokens[mine]), messages.Report(0, 0)]))
                await heard(socket, messages.read_from_dispatch, messages.Reported)
        for name in AB:
            rows = (await f.cell(name).records.fleet.snapshot()).workers
            assert [row.gone for row in rows] == [False], "nobody was ended with another cell's token"


async def test_a_link_to_no_cell_is_not_found(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path) as f:
        for url in (f"{f.dispatch[0]}/v1/workers/link", f"{f.infer[0]}/v1/pull"):
            for query in ("", "?cell=x"):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await f.http.ws_connect(url + query)
                assert refused.value.status == 404


# -- deaths


async def test_lives_of_a_killed_worker_are_placed_anew_in_their_cell(tmp_path: Path) -> None:
    settings = {"recover_s": 0.05}
    async with cell_fleet(tmp_path, dispatch=2, with_loops=True, replica=settings) as f:
        record = Record()
        doomed = await f.start_worker(record, "w1", cell="a")
        await ready_in(f, a=1)
        lives = f.ids("a", 2)
        for live in lives:
            assert (await f.create(live))["worker"] == "w1#1"
            assert (await f.push(live, "before"))[0] == 200
        await until(lambda: all(record.texts(live) == ["before"] for live in lives), "the items")
        await f.start_worker(record, "w2", cell="a")
        await f.start_worker(record, "w3", capacity=100, cell="b")
        await ready_in(f, a=2, b=1)
        await doomed.kill()
        for live in lives:
            at = await until_so(
                partial(f.get, f"/v1/lives/{live}"),
                lambda at: at["claimed"] and at["epoch"] == 2,
                f"a new place of {live}",
            )
            assert (at["worker"], at["cell"], at["cause"]) == ("w2#2", "a", "recover"), "although b has more free slots"
            assert (await f.push(live, "after"))[0] == 200
        await until(lambda: all(record.texts(live)[-1] == "after" for live in lives), "input goes on")
        events = await until_so(
            lambda: f.get("/v1/events?limit=1000"),
            lambda page: [each["kind"] for each in page["events"]].count("live_recovered") == 2,
            "the events of both",
        )
        assert [each["worker"] for each in events["events"] if each["kind"] == "worker_lost"] == ["w1#1"]
        assert sorted(each["live_id"] for each in events["events"] if each["kind"] == "live_recovered") == sorted(lives)
        await until_so(
            lambda: f.get("/v1/summary"),
            lambda summary: summary["workers_by_status"] == {"lost": 1, "ready": 2},
            "the lost Worker in the summary",
        )
        told = await until_so(
            lambda: f.get("/v1/replicas"), lambda found: len(found["replicas"]) == 3, "what replicas tell of themselves"
        )
        assert [each["role"] for each in told["replicas"]] == ["dispatch", "dispatch", "infer"], "each one once"


async def test_a_controller_that_stops_is_left_in_every_cell(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0) as f:
        stop = await f.start_infer(name="i1")
        record = Record()
        for name in AB:
            await f.start_worker(record, f"w-{name}", cell=name)
        await ready_in(f, a=1, b=1)
        lives = [live for name in AB for live in f.ids(name, 1)]
        for live in lives:
            await f.create(live)
            assert (await f.push(live, "one"))[0] == 200
        await until(lambda: all(record.texts(live) == ["one"] for live in lives), "the items")
        f.infer.clear()
        await f.start_infer(name="i2")
        stop.set()
        for live in lives:
            assert (await f.push(live, "two"))[0] == 200
        await until(lambda: all(record.texts(live) == ["one", "two"] for live in lives), "the items by the other one")
        for name in AB:

            async def announced(name: str = name) -> list[str]:
                return [each.id for each in await f.cell(name).records.controllers.all()]

            await until_so(announced, lambda ids: ids == ["i2"], f"the end of the first controller in cell {name}")
