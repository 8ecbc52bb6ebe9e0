"""An operator moves a Worker to another cell: its lives stay in theirs, and it takes lives of that cell then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.harness.fleet import Record, fleet, until, until_so
from tests.harness.many_cells import CellFleet, cell_fleet


async def ready(f: CellFleet, name: str) -> list[tuple[str, str]]:
    """Return WorkerID and cell of each Worker of this name that takes new lives."""
    rows = (await f.get("/v1/workers"))["workers"]
    return [
        (row["worker"], row["cell"])
        for row in rows
        if row["worker"].startswith(f"{name}#") and row["status"] == "ready"
    ]


async def wait_for(f: CellFleet, name: str, cell: str) -> str:
    """Wait until the one Worker of this name that takes new lives is in this cell; return its id."""

    async def found() -> list[tuple[str, str]]:
        return await ready(f, name)

    [(worker, _)] = await until_so(
        found, lambda rows: [row[1] for row in rows] == [cell], f"Worker {name} in cell {cell}"
    )
    return worker


async def drain(f: CellFleet, worker: str, **body: Any) -> tuple[int, Any]:
    return await f.ask("POST", f"/v1/workers/{worker.replace('#', '%23')}/drain", body)


async def owner_of(f: CellFleet, live: str) -> str:
    return str((await f.get(f"/v1/lives/{live}"))["worker"])


async def test_a_worker_moves_to_another_cell_once_it_is_empty(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, with_loops=True) as f:
        record = Record()
        await f.start_worker(record, "w1", cell="a")
        first = await wait_for(f, "w1", "a")
        [live] = f.ids("a", 1)
        assert (await f.create(live))["worker"] == first
        assert (await f.push(live, "one"))[0] == 200
        await until(lambda: record.texts(live) == ["one"], "the item on the first Worker")

        status, progress = await drain(f, first, to_cell="b")
        assert (status, progress["to_cell"], progress["left"]) == (200, "b", 1)
        assert (await ready(f, "w1")) == [], "no other Worker of its cell can take the live, so it waits"
        await f.start_worker(record, "w2", cell="a")
        second = await wait_for(f, "w2", "a")
        moved = await wait_for(f, "w1", "b")
        assert moved == f.worker_id("b", "w1")
        assert (tmp_path / "w1.lock").read_text() == f"b/{moved}\n", "it comes back to b after a crash"
        assert await owner_of(f, live) == second
        assert (await f.push(live, "two"))[0] == 200
        await until(lambda: record.texts(live) == ["one", "two"], "the next item in the first cell")

        [other] = f.ids("b", 1)
        assert (await f.create(other))["worker"] == moved
        assert (await f.push(other, "three"))[0] == 200
        await until(lambda: record.texts(other) == ["three"], "an item of the other cell on the Worker that moved")
        events = (await f.get("/v1/events"))["events"]
        [started] = [each for each in events if each["kind"] == "drain_started"]
        assert (started["worker"], started["numbers"]["to_cell"]) == (first, "b")


async def test_a_move_that_is_cancelled_leaves_the_worker_where_it_is(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, with_loops=True) as f:
        record = Record()
        await f.start_worker(record, "w1", cell="a")
        first = await wait_for(f, "w1", "a")
        [live] = f.ids("a", 1)
        assert (await f.create(live))["worker"] == first
        assert (await drain(f, first, to_cell="b"))[0] == 200
        path = f"/v1/workers/{first.replace('#', '%23')}/drain"
        assert (await f.ask("DELETE", path))[0] == 200
        assert await wait_for(f, "w1", "a") == first
        status, progress = await drain(f, first)
        assert status == 200 and "to_cell" not in progress, "a later drain without a cell ends where it is"
        assert (await f.ask("DELETE", path))[0] == 200
        assert (await f.push(live, "one"))[0] == 200
        await until(lambda: record.texts(live) == ["one"], "the item on the Worker that stayed")


async def test_a_move_to_no_other_cell_is_refused(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0) as f:
        await f.start_worker(Record(), "w1", cell="a")
        worker = await wait_for(f, "w1", "a")
        for to, status, said in (
            ("c", 404, "cell c does not exist"),
            ("a", 409, "is in cell a already; name another cell"),
        ):
            answer, problem = await drain(f, worker, to_cell=to)
            assert answer == status and said in problem["detail"]
        assert [row for row, _ in await ready(f, "w1")] == [worker], "nothing was drained"


async def test_a_deployment_of_one_cell_has_no_other(tmp_path: Path) -> None:
    async with fleet(tmp_path, infer=0) as f:
        await f.start_worker(Record(), "w1")
        status, problem = await f.post(f"{f.dispatch[0]}/v1/workers/w1%231/drain", {"to_cell": "b"})
        assert (status, problem["code"]) == (404, "NOT_FOUND") and "has one cell" in problem["detail"]
