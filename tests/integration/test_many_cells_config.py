"""Configuration, keys and limits of tenants over several cells; and the settings that a deployment refuses."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dhsched.access.api_keys import id_of
from dhsched.dispatch.app import open_context
from dhsched.dispatch.cells.app import open_front
from dhsched.errors import BadSetting, StoreIncompatible
from dhsched.infer.app import open_infer
from dhsched.infer.cells import open_cells
from dhsched.infer.settings import InferSettings
from dhsched.settings import DispatchSettings
from dhsched.store.records.config import Copy, What
from tests.harness.fleet import PATIENCE_S, Record, until, until_so
from tests.harness.keyed import bearer
from tests.harness.many_cells import AB, CellFleet, cell_fleet
from tests.harness.servers import empty_server
from tests.harness.serving import serving

KEYS = {"access": "keys"}


async def kept(f: CellFleet, what: What) -> list[Copy]:
    """What each cell has."""
    copies = [await f.cell(name).records.config.copy(what) for name in f.names]
    assert None not in copies
    return [copy for copy in copies if copy is not None]


def names_of(copy: Copy, kind: str) -> list[str]:
    return [field.decode() for each, field, _ in copy.rows if each == kind]


async def test_what_is_configured_through_any_replica_is_in_every_cell(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, "a", "b", "c", dispatch=2, infer=0) as f:
        for at, pool in ((0, "p0"), (1, "p1")):
            assert (await f.ask("PUT", f"/v1/pools/{pool}", {"priority": 1 + at}, at=at))[0] == 201
            body = {"pools": [{"pool": pool}, {"pool": "gpu"}]}
            assert (await f.ask("PUT", f"/v1/digital-ids/d{at}", body, at=at))[0] == 201
            assert (await f.ask("PUT", f"/v1/tenants/t{at}", {"lives_max": 5 + at}, at=at))[0] == 201
            copies = await kept(f, "config")
            assert copies == [copies[0]] * 3
            assert pool in names_of(copies[0], "pools") and f"t{at}" in names_of(copies[0], "tenants")
        for at in (0, 1):
            pools = (await f.ask("GET", "/v1/pools", at=at))[1]["pools"]
            assert {each["name"]: each["config"]["priority"] for each in pools} == {"gpu": 0, "p0": 1, "p1": 2}
            assert [each["name"] for each in (await f.ask("GET", "/v1/digital-ids", at=at))[1]["digital_ids"]] == [
                *("d0", "d1", "demo")
            ]
        for name in f.names:
            await f.workers(name, 1, capacity=4)
            status, _ = await f.ask("POST", "/v1/lives", {"digital_id": "d1", "live_id": f.ids(name, 1)[0]})
            assert status == 201, "in each cell, at once"
        for at, path in ((1, "/v1/tenants/t0"), (0, "/v1/digital-ids/d0"), (1, "/v1/pools/p0")):
            assert (await f.ask("DELETE", path, at=at))[0] == 204
        copies = await kept(f, "config")
        assert copies == [copies[0]] * 3
        assert names_of(copies[0], "pools") == ["gpu", "p1"] and names_of(copies[0], "tenants") == ["t1"]


async def test_what_another_cell_uses_is_not_deleted(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0) as f:
        assert (await f.ask("PUT", "/v1/pools/cpu", {}))[0] == 201
        await f.workers("b", 1, capacity=4, pool="cpu", start="c")
        await f.workers("b", 1, capacity=4)
        status, problem = await f.ask("DELETE", "/v1/pools/cpu")
        assert (status, problem["code"], problem["workers"]) == (409, "IN_USE", 1)
        [live] = f.ids("b", 1)
        assert (await f.place(live))[0] == 201
        status, problem = await f.ask("DELETE", "/v1/digital-ids/demo")
        assert (status, problem["code"], problem["live_id"]) == (409, "IN_USE", live)
        assert (await f.ask("DELETE", "/v1/digital-ids/demo?force=1"))[0] == 204
        assert (await f.ask("DELETE", "/v1/pools/cpu?force=1"))[0] == 204


async def test_the_loops_bring_every_cell_up_to_date(tmp_path: Path) -> None:
    """Whatever wrote it, and whatever a cell has forgotten."""
    async with cell_fleet(tmp_path, infer=0, with_loops=True) as f:
        config = f.cell("b").store.records.config
        rows = (("tenants", b"acme", b'{"lives_max":3}'),)
        newest = Copy((await config.rev()) + 5, rows)
        assert await config.take_over("config", newest, also_equal=False)

        async def copies() -> list[Copy | None]:
            return [await f.cell(name).records.config.copy("config") for name in AB]

        await until_so(copies, lambda found: found == [newest] * 2, "the newest copy in the first cell")
        quotas = f.fronts[0].service.quotas
        await until(lambda: quotas.limits_of("acme").lives_max == 3, "the limit that was copied")


# -- keys


async def test_a_key_of_any_replica_is_known_everywhere_until_it_is_revoked(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, dispatch=2, infer=1, replica=KEYS, controller=KEYS) as f:
        for name in AB:
            await f.workers(name, 1, capacity=4)
        status, made = await f.ask("POST", "/v1/keys", {"role": "app", "tenant": "acme"}, at=1)
        assert status == 201
        copies = await kept(f, "keys")
        assert copies[0] == copies[1] and f"api:{id_of(made['key'])}" in names_of(copies[1], "keys")
        shown = [bearer(await f.mint(made["key"], at=at)) for at in (0, 1)]
        live = f.ids("b", 1, tenant="acme")[0]
        body = {"digital_id": "demo", "live_id": live}
        assert (await f.ask("POST", "/v1/lives", body, at=0, headers=shown[1]))[0] == 201
        url = f"{f.infer[0]}/v1/lives/{live}/text"

        async def push() -> int:
            async with f.http.post(url, json={"text": "x"}, headers=shown[0]) as response:
                return response.status

        assert await push() == 200
        async with f.http.ws_connect(f"{f.infer[0]}/v1/stream", headers=shown[0]) as socket:
            assert (await f.ask("DELETE", f"/v1/keys/{id_of(made['key'])}", at=0))[0] == 204
            copies = await kept(f, "keys")
            assert copies[0] == copies[1] and f"api:{id_of(made['key'])}" not in names_of(copies[1], "keys")

            async def asked(at: int) -> int:
                return (await f.ask("GET", "/v1/lives", at=at, headers=shown[at]))[0]

            for at in (0, 1):
                await until_so(partial(asked, at), lambda status: status == 401, f"replica {at} to refuse it")
            await until_so(push, lambda status: status == 401, "the controller to refuse it")
            ended = await asyncio.wait_for(socket.receive(), PATIENCE_S)
            assert ended.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR, aiohttp.WSMsgType.CLOSE)


async def test_a_banned_name_is_ended_in_every_cell(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, replica=KEYS, controller=KEYS) as f:
        key = await f.key("worker", names="*")
        for name in AB:
            await f.start_worker(Record(), f"w-{name}", cell=name, key=key)
        await until_so(f.cells_of, lambda cells: [each["capacity"] for each in cells.values()] == [4, 4], "two Workers")
        status, banned = await f.ask("PUT", "/v1/bans/w-b", {"note": "lost"})
        assert (status, banned["workers"]) == (200, [f.worker_id("b", "w-b")])

        async def statuses() -> dict[str, str]:
            return {row["worker"]: row["status"] for row in (await f.get("/v1/workers"))["workers"]}

        left = {f.worker_id("a", "w-a"): "ready"}
        await until_so(statuses, lambda found: found == left, "the end of the banned one")
        copies = await kept(f, "keys")
        assert copies[0] == copies[1] and "ban:w-b" in names_of(copies[1], "keys")
        assert (await f.ask("DELETE", "/v1/bans/w-b"))[0] == 204


# -- limits of tenants


async def test_lives_of_a_tenant_are_limited_over_all_cells(tmp_path: Path) -> None:
    acme = {"X-Tenant": "acme"}
    async with cell_fleet(tmp_path, infer=0) as f:
        for name in AB:
            await f.workers(name, 1, capacity=1000)
        assert (await f.ask("PUT", "/v1/tenants/acme", {"lives_max": 3}))[0] == 201
        ids = {name: f.ids(name, 200, tenant="acme") for name in AB}

        async def place(live: str) -> tuple[int, Any]:
            return await f.ask("POST", "/v1/lives", {"digital_id": "demo", "live_id": live}, headers=acme)

        async def end(live: str) -> int:
            return (await f.ask("POST", f"/v1/lives/{live}/end", {}, headers=acme))[0]

        assert [(await place(live))[0] for live in (*ids["a"][:2], ids["b"][0])] == [201] * 3

        async def one_more(name: str) -> tuple[int, Any]:
            """Try to create another one; what was created after all, by a count of a moment ago, is ended again."""
            live = ids[name].pop()
            status, answer = await place(live)
            assert status in (201, 429), answer
            if status == 201:
                assert await end(live) == 200
                await asyncio.sleep(0.2)
            return status, answer

        for name in AB:
            _, problem = await until_so(
                partial(one_more, name), lambda found: found[0] == 429, f"the limit in cell {name}"
            )
            assert (problem["quota"], problem["used"], problem["limit"]) == ("lives_max", 3, 3)
        assert (await place(ids["a"][0]))[0] == 200, "it is there already"
        assert (await f.ask("POST", "/v1/lives", {"digital_id": "demo", "live_id": f.ids("a", 1)[0]}))[0] == 201
        usage = (await f.ask("GET", "/v1/tenants/acme/usage"))[1]
        assert (usage["lives"], usage["limits"]["lives_max"]) == (3, 3)
        assert await end(ids["b"][0]) == 200

        async def in_a() -> int:
            return (await place(ids["a"][2]))[0]

        await until_so(in_a, lambda status: status in (200, 201), "the place that was given back in the other cell")


async def test_streams_of_a_tenant_are_counted_once(tmp_path: Path) -> None:
    acme = {"X-Tenant": "acme"}
    async with cell_fleet(tmp_path, infer=2) as f:
        assert (await f.ask("PUT", "/v1/tenants/acme", {"streams_max": 2}))[0] == 201
        reports = [each.part.context.quota_reports for over in f.over_cells for each in over._cells]

        async def told() -> None:
            for each in [*reports, *reports]:
                await each.round()

        async def refused(url: str) -> bool:
            async with f.http.get(f"{url}/v1/stream", headers=acme) as response:
                return response.status == 429

        await told()
        async with f.http.ws_connect(f"{f.infer[0]}/v1/stream", headers=acme):
            await told()
            assert [await refused(url) for url in f.infer] == [False, False], "one of two, in whatever cells"
            async with f.http.ws_connect(f"{f.infer[1]}/v1/stream", headers=acme):
                await told()
                assert [await refused(url) for url in f.infer] == [True, True]


# -- settings


async def test_every_service_must_have_the_list_of_the_cells(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, "a", "b", infer=0) as f:
        url = f.store_url
        for cells in ("b a", "a b c", "a c"):
            given = ", ".join(cells.split())
            told = f"cell [ab] belongs to a deployment of the cells a, b, in this order.*was given {given};"
            with pytest.raises(StoreIncompatible, match=told):
                async with open_front(DispatchSettings(port=0, store=url, cells=cells, access="open")):
                    pass
            with pytest.raises(StoreIncompatible, match=told):
                async with open_cells(InferSettings(port=0, store=url, cells=cells, access="open")):
                    pass
        alone = "cell b belongs to a deployment of the cells a, b, in this order, and this service was given b"
        with pytest.raises(StoreIncompatible, match=alone):
            async with open_context(f.address, DispatchSettings(port=0, store=url, cell="b", access="open")):
                pass
        with pytest.raises(StoreIncompatible, match=alone):
            async with open_infer(InferSettings(port=0, store=url, cell="b", access="open")):
                pass
        await f.start_dispatch()
        assert [*(await f.cells_of(1))] == ["a", "b"], "the right one starts beside them"


async def test_a_cell_that_one_cell_has_used_is_none_of_several() -> None:
    async with empty_server("valkey") as server:
        async with serving(server.address, cell="a") as api:
            await api.configure()
            await api.workers(1, capacity=4)
        settings = DispatchSettings(port=0, store=server.address.url(), cells="b a", access="open")
        with pytest.raises(StoreIncompatible, match="cell a has Workers or lives of a deployment of one cell"):
            async with open_front(settings):
                pass
        async with serving(server.address, cell="a") as api:
            assert (await api("GET", "/v1/pools/gpu"))[0] == 200, "it goes on as it was"


async def test_several_cells_need_a_store() -> None:
    with pytest.raises(BadSetting, match="several cells need a store that runs already"):
        async with open_front(DispatchSettings(port=0, cells="a b", access="open")):
            pass
    with pytest.raises(BadSetting, match="names one cell, a"):
        async with open_cells(InferSettings(port=0, store="redis://localhost:1", cells="a", access="open")):
            pass
