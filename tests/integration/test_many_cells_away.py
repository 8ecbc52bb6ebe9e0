"""A cell whose store is away fails its own lives and nothing else; it is taken in again when it is back."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dhsched.errors import StoreUnavailable
from tests.harness.fleet import Record, until, until_so
from tests.harness.keyed import bearer
from tests.harness.many_cells import AB, CellFleet, cell_fleet


async def both(f: CellFleet) -> dict[str, list[str]]:
    """A Worker in each cell, and two lives; their ids by cell, and two ids more."""
    ids = {name: f.ids(name, 4) for name in AB}
    for name in AB:
        await f.workers(name, 1, capacity=50)
        for live in ids[name][:2]:
            assert (await f.place(live))[0] == 201
    return ids


async def refused(asking: Any, cell: str) -> None:
    """What is asked is answered 503, and the answer names the cell."""
    status, problem = await asking
    assert (status, problem["code"]) == (503, "STORE_UNAVAILABLE"), problem
    assert f"cell {cell}" in problem["detail"]


async def until_placed(f: CellFleet, live: str, at: int = 0) -> None:
    async def place() -> int:
        return (await f.place(live, at=at))[0]

    await until_so(place, lambda status: status in (200, 201), f"the create of {live}")


async def test_a_cell_that_is_away_fails_its_own_lives_and_no_others(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, apart=True) as f:
        ids = await both(f)
        for name in AB:
            assert (await f.push(ids[name][0], "before"))[0] == 200
        f.kill_store("b")
        await f.until_away("b")
        # Its own lives: all at once, because each of them waits for the store.
        live, new = ids["b"][0], ids["b"][2]
        failing = (
            f.ask("GET", f"/v1/lives/{live}"),
            f.place(new),
            f.push(live, "x"),
            f.ask("POST", f"/v1/lives/{live}/text", {"text": "x"}),
            f.ask("GET", f"/v1/lives/{live}/why"),
            f.ask("POST", f"/v1/lives/{live}/end"),
        )
        meanwhile = asyncio.gather(*(refused(each, "b") for each in failing))
        # The others: nothing waits.
        async with asyncio.timeout(60):
            assert (await f.place(ids["a"][2]))[0] == 201
            assert (await f.push(ids["a"][0], "meanwhile"))[0] == 200
            assert (await f.ask("POST", f"/v1/lives/{ids['a'][0]}/text", {"text": "through"}))[0] == 200
            made = [await f.place() for _ in range(8)]
            assert [status for status, _ in made] == [201] * 8, "an id of the server is drawn for a cell that answers"
            assert {(await f.get(f"/v1/lives/{one['live_id']}"))["cell"] for _, one in made} == {"a"}
        await meanwhile
        for path, rows in (
            ("/v1/lives", "lives"),
            ("/v1/workers", "workers"),
            ("/v1/pools", "pools"),
            ("/v1/recoveries", "recoveries"),
            ("/v1/events?after=0", "events"),
        ):
            status, page = await f.ask("GET", path)
            assert (status, page["cells_left_out"]) == (200, ["b"]), path
            assert all(row.get("cell", "a") == "a" for row in page[rows])
        assert len((await f.get("/v1/lives"))["lives"]) == 2 + 1 + 8
        for path in ("/v1/digital-ids", "/v1/tenants", "/v1/replicas", "/v1/audit"):
            assert (await f.ask("GET", path))[0] == 200, path
        # Totals that only grow: without a cell they would fall.
        await refused(f.ask("GET", "/v1/tenants/default/usage"), "b")
        for url in (*f.dispatch, *f.infer):
            async with f.http.get(f"{url}/readyz") as response:
                assert response.status == 200, "the others are served"
            cells = await until_so(partial(ready, f, url), lambda cells: cells["b"], "the cell's trouble")
            assert cells["a"] == "" and "reached" in cells["b"]
        cells = await f.cells_of()
        assert [cells[name]["ready"] for name in AB] == [True, False] and cells["b"]["trouble"]
        summary = await f.get("/v1/summary")
        assert [(each["name"], each["ready"]) for each in summary["cells"]] == [("a", True), ("b", False)]
        assert summary["lives"]["open"] == 11
        await f.restart_store("b")
        await until_placed(f, new)
        status, page = await f.ask("GET", "/v1/lives?limit=1000")
        assert "cells_left_out" not in page and {row["cell"] for row in page["lives"]} == {*AB}
        at = await f.get(f"/v1/lives/{ids['b'][0]}")
        assert (at["appended"], at["state"]) == (1, "open"), "what was refused was not done"
        assert await until_so(f.cells_of, lambda cells: cells["b"]["ready"], "the cell that is back")


async def ready(f: CellFleet, url: str) -> Any:
    async with f.http.get(f"{url}/readyz") as response:
        return (await response.json())["cells"]


async def test_workers_and_input_of_other_cells_go_on_and_those_of_the_cell_come_back(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, apart=True) as f:
        record = Record()
        for name in AB:
            await f.start_worker(record, f"w-{name}", cell=name)
        await until_so(f.cells_of, lambda cells: [each["capacity"] for each in cells.values()] == [4, 4], "two Workers")
        lives = {name: f.ids(name, 1)[0] for name in AB}
        for name in AB:
            await f.create(lives[name])
            assert (await f.push(lives[name], "one"))[0] == 200
        await until(lambda: all(record.texts(live) == ["one"] for live in lives.values()), "the first items")
        f.kill_store("b")
        await f.until_away("b")
        assert (await f.push(lives["a"], "two"))[0] == 200
        await until(lambda: record.texts(lives["a"]) == ["one", "two"], "input of the other cell")
        await f.start_worker(record, "w-new")

        async def listed() -> list[str]:
            return [row["worker"] for row in (await f.get("/v1/workers?status=ready"))["workers"]]

        await until_so(listed, lambda rows: "w-new#2" in rows, "a Worker that registers in the cell that answers")
        await f.restart_store("b")

        async def push() -> int:
            return (await f.push(lives["b"], "two", request_id="r2"))[0]

        await until_so(push, lambda status: status == 200, "input of the cell that is back")
        await until(lambda: record.texts(lives["b"])[-1] == "two", "the item at its Worker")
        assert record.texts(lives["b"]).count("two") == 1


async def test_what_is_configured_while_a_cell_is_away_is_there_when_it_is_back(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, apart=True, infer=0) as f:
        ids = await both(f)
        f.kill_store("b")
        await f.until_away("b")
        assert (await f.ask("PUT", "/v1/pools/cpu", {"priority": 7}))[0] == 201
        assert (await f.ask("PUT", "/v1/digital-ids/late", {"pools": [{"pool": "gpu"}]}))[0] == 201
        assert (await f.ask("DELETE", "/v1/pools/cpu"))[0] == 204
        assert (await f.ask("PUT", "/v1/tenants/acme", {"lives_max": 1}))[0] == 201
        await f.restart_store("b")
        await until_placed(f, ids["b"][2])
        await until(lambda: f.cell("b").linked, "both links to the cell")
        await f.fronts[0].copies.round()
        configs = [await f.cell(name).records.config.copy("config") for name in AB]
        assert configs[0] == configs[1] is not None
        status, _ = await f.ask("POST", "/v1/lives", {"digital_id": "late", "live_id": ids["b"][3]})
        assert status == 201, "in the cell that was away"


async def test_while_the_first_cell_is_away_nothing_can_be_configured_and_all_else_goes_on(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, apart=True) as f:
        ids = await both(f)
        f.kill_store("a")
        await f.until_away("a")
        writes = (
            f.ask("PUT", "/v1/pools/cpu", {}),
            f.ask("PUT", "/v1/digital-ids/late", {"pools": [{"pool": "gpu"}]}),
            f.ask("PUT", "/v1/tenants/acme", {"lives_max": 1}),
            f.ask("POST", "/v1/keys", {"role": "reader"}),
        )
        meanwhile = asyncio.gather(*(refused(each, "a") for each in writes))
        assert (await f.place(ids["b"][2]))[0] == 201
        assert (await f.push(ids["b"][0], "x"))[0] == 200
        assert [each["name"] for each in (await f.get("/v1/digital-ids"))["digital_ids"]] == ["demo"]
        assert (await f.get("/v1/lives"))["cells_left_out"] == ["a"]
        await meanwhile
        await f.cell("b").context.audit.written()
        trail = (await f.get("/v1/audit"))["entries"]
        assert "create_live" in [each["endpoint"] for each in trail], "the trail goes on in another cell"
        await f.restart_store("a")
        await until_placed(f, ids["a"][2])
        assert (await f.ask("PUT", "/v1/pools/cpu", {}))[0] == 201


@pytest.mark.parametrize("away", AB)
async def test_a_replica_that_starts_while_a_cell_is_away_serves_the_others_and_takes_it_in(
    tmp_path: Path, away: str
) -> None:
    """With the configuration and the keys that the others have."""
    [other] = {*AB} - {away}
    async with cell_fleet(tmp_path, apart=True, replica={"access": "keys"}, controller={"access": "keys"}) as f:
        ids = await both(f)
        app = await f.key("app")
        await f.fronts[0].copies.round()
        f.kill_store(away)
        await asyncio.gather(f.start_dispatch(access="keys"), f.start_infer(access="keys"))
        assert f.fronts[1].named(away).trouble and not f.fronts[1].named(other).trouble
        signed = bearer(await f.mint(app, at=1))
        status, _ = await f.ask(
            "POST", "/v1/lives", {"digital_id": "demo", "live_id": ids[other][2]}, at=1, headers=signed
        )
        assert status == 201
        url = f"{f.infer[1]}/v1/lives/{ids[other][2]}/text"
        async with f.http.post(url, json={"text": "x"}, headers=signed) as response:
            assert response.status == 200
        url = f"{f.infer[1]}/v1/lives/{ids[away][0]}/text"
        async with f.http.post(url, json={"text": "x"}, headers=signed) as response:
            problem = await response.json()
            assert response.status == 503 and f"cell {away} is not served" in problem["detail"]
        await refused(f.ask("GET", f"/v1/lives/{ids[away][0]}", at=1, headers=signed), away)
        assert (await f.ask("GET", "/v1/lives", at=1, headers=signed))[1]["cells_left_out"] == [away]
        if away == "a":
            await refused(f.ask("PUT", "/v1/pools/cpu", {}, at=1), "a")
            await refused(f.ask("POST", "/v1/keys", {"role": "reader"}, at=1), "a")
            with pytest.raises(StoreUnavailable, match="keys are written in cell a"):
                await f.fronts[1].ring.create(role="reader")
        else:
            assert (await f.ask("PUT", "/v1/pools/cpu", {}, at=1))[0] == 201
        await f.restart_store(away)
        await until(lambda: not f.fronts[1].named(away).trouble, "the cell to be served")
        status, at = await f.ask("GET", f"/v1/lives/{ids[away][0]}", at=1, headers=signed)
        assert (status, at["cell"]) == (200, away)

        async def push() -> int:
            async with f.http.post(url, json={"text": "x"}, headers=signed) as response:
                return response.status

        await until_so(push, lambda status: status == 200, "input of the cell at the controller")

        async def new_key() -> int:
            return (await f.ask("POST", "/v1/keys", {"role": "reader"}, at=1))[0]

        await until_so(new_key, lambda status: status == 201, "a key through the replica that started without the cell")
        assert "cells_left_out" not in (await f.ask("GET", "/v1/lives", at=1, headers=signed))[1]


async def test_nothing_starts_without_any_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhsched.store.reaching.START_S", 0.5)
    async with cell_fleet(tmp_path, apart=True, infer=0) as f:
        for name in AB:
            f.kill_store(name)
        with pytest.raises(StoreUnavailable, match="no cell can be reached; a: "):
            await f.start_dispatch()
        async with f.http.get(f"{f.dispatch[0]}/readyz") as response:
            problem = await response.json()
            assert response.status == 503 and "cell a: " in problem["detail"] and "cell b: " in problem["detail"]
        for name in AB:
            await f.restart_store(name)
