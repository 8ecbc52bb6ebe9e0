"""A deployment of several cells behind one address: each live in the cell of its name, every list over all cells."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dhsched.client import Client
from dhsched.dispatch.telemetry.events import Kind
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.types import split_tag
from tests.harness.fleet import PATIENCE_S, Record, until, until_so
from tests.harness.many_cells import AB, CellFleet, cell_fleet

STREAM = {"Accept": "text/event-stream"}
ROOMY = Limits(starts_create_max=10**6)  # The Workers of most tests start nothing.


async def next_event(response: Any) -> tuple[str, Any]:
    """The cursor and the data of the next event of a stream."""
    cursor = ""
    async with asyncio.timeout(PATIENCE_S):
        while not (line := (await response.content.readline()).decode()).startswith("data: "):
            assert line, "the stream ended"
            cursor = line[4:].strip() if line.startswith("id: ") else cursor
    return cursor, json.loads(line[6:])


async def test_lives_of_every_cell_through_one_address(tmp_path: Path) -> None:
    """Create, push, pull, ack, watch and end; alone, and with the lives of all cells on one stream."""
    async with cell_fleet(tmp_path, "a", "b", "c") as f:
        record = Record()
        for name in f.names:
            await f.start_worker(record, f"w-{name}", cell=name)
        await until_so(f.cells_of, lambda found: [each["workers"] for each in found.values()] == [1, 1, 1], "Workers")
        homes = {live: name for name in f.names for live in f.ids(name, 2)}
        for live, name in homes.items():
            assert (await f.create(live))["worker"].startswith(f"w-{name}#")
            assert (await f.get(f"/v1/lives/{live}"))["cell"] == name
            assert (await f.push(live, "direct"))[0] == 200
            assert (await f.ask("POST", f"/v1/lives/{live}/text", {"text": "through"}))[0] == 200
        async with f.http.ws_connect(f"{f.dispatch[0]}/v1/stream?producer=p") as socket:
            await socket.send_str(json.dumps([{"live": live, "n": 1, "text": "stream"} for live in homes]))
            answers: list[Any] = []
            while len(answers) < len(homes):
                answers += json.loads((await socket.receive(timeout=PATIENCE_S)).data)
            assert {each["live"]: each["seq"] for each in answers} == dict.fromkeys(homes, 3)
            await socket.send_str(json.dumps([{"live": "nobody", "n": 1, "text": "x"}]))
            [refused] = json.loads((await socket.receive(timeout=PATIENCE_S)).data)
            assert refused["problem"]["code"] == "NOT_FOUND"
        wanted = ["direct", "through", "stream"]
        await until(lambda: all(record.texts(live) == wanted for live in homes), "every item at its Worker")
        assert {one.worker[2] for one in record.consumed if one.live == "default/" + f.ids("c", 1)[0]} == {"c"}
        for live, name in homes.items():
            await until_so(partial(f.get, f"/v1/lives/{live}"), lambda at: at["acked"] == 3, "the acks")
            async with Client(f.dispatch) as client:
                watched = asyncio.create_task(names_of_events(client, live))
                await client.end(live, after_pending=True)
                assert (await asyncio.wait_for(watched, PATIENCE_S))[-1] == "ended", name


async def names_of_events(client: Client, live: str) -> list[str]:
    return [event.name async for event in client.events(live)]


async def test_an_id_is_in_its_cell_and_found_through_every_replica(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, dispatch=2, infer=0) as f:
        for name in AB:
            await f.workers(name, 1, capacity=10)
        for name in AB:
            for at, live in enumerate(f.ids(name, 2)):
                status, made = await f.place(live, at=at)
                assert status == 201
                status, again = await f.place(live, at=1 - at)
                assert status == 200 and (again["worker"], again["epoch"]) == (made["worker"], made["epoch"])
                assert (await f.place(live, at=1 - at, room="other"))[1]["code"] == "CONFLICT"
                for replica in (0, 1):
                    assert (await f.ask("GET", f"/v1/lives/{live}", at=replica))[1]["cell"] == name
                for cell in AB:
                    kept = await f.cell(cell).records.lives.get(f"default/{live}")
                    assert (kept is not None) == (cell == name), "in its cell, and in no other"
        key = {"Idempotency-Key": "checkout-17"}
        answers = [await f.ask("POST", "/v1/lives", {"digital_id": "demo"}, at=at, headers=key) for at in (0, 1)]
        assert [status for status, _ in answers] == [201, 200] and answers[0][1]["live_id"] == answers[1][1]["live_id"]
        assert (await f.ask("GET", "/v1/lives/nobody"))[0] == 404


async def test_ids_of_the_server_follow_the_free_slots(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0, limits=ROOMY) as f:
        await f.workers("a", 1, capacity=2)
        await f.workers("b", 2, capacity=20)
        made = [await f.place() for _ in range(6)]
        assert [status for status, _ in made] == [201] * 6
        homes = [(await f.get(f"/v1/lives/{placed['live_id']}"))["cell"] for _, placed in made]
        assert homes == ["b"] * 6, "the emptier one of two, and there are two"
        for live in f.ids("a", 2):
            assert (await f.place(live))[0] == 201
        status, problem = await f.place(f.ids("a", 3)[2])
        assert (status, problem["code"]) == (503, "FULL") and "cell a" in problem["detail"]
        assert (problem["cell"], problem["elsewhere"], problem["free_in_cells"]) == ("a", True, {"b": 34})
        assert [(await f.place())[0] for _ in range(34)] == [201] * 34, "every slot of b is found"
        status, problem = await f.place()
        assert (status, problem["code"]) == (503, "FULL")


async def test_an_id_of_the_server_waits_for_a_slot_where_none_is_free(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0, replica={"wait_retry_s": 0.05}) as f:
        await f.workers("a", 1, capacity=1)
        await f.workers("b", 1, capacity=1)
        for name in AB:
            assert (await f.place(f.ids(name, 1)[0]))[0] == 201
        waiting = asyncio.create_task(f.place(query="?wait_s=60"))
        queues = [f.cell(name).context.create_queue for name in AB]
        await until(lambda: sum(map(len, queues)) == 1, "a create that waits")
        waits_in = AB[[len(queue) for queue in queues].index(1)]
        assert (await f.ask("POST", f"/v1/lives/{f.ids(waits_in, 1)[0]}/end"))[0] == 200
        [worker] = f.cell(waits_in).context.fleet.view.workers
        store = f.cell(waits_in).store
        for tag in await f.cell(waits_in).records.workers.slots(worker):
            live, number = split_tag(tag)
            await store.depart(worker=worker, live=live, number=number)
        status, placed = await waiting
        assert status == 201 and (await f.get(f"/v1/lives/{placed['live_id']}"))["cell"] == waits_in


# -- lists


async def test_a_list_under_churn_has_each_live_that_stays_once(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0, limits=ROOMY) as f:
        workers = {name: (await f.workers(name, 1, capacity=100_000))[0] for name in AB}

        async def fill(name: str, ids: list[str]) -> None:
            create = Create(digital_id="demo", fingerprint="f")
            places = (
                f.cell(name).store.place(
                    live=f"default/{live}", operation=live, cause="create", create=create, candidates=[workers[name]]
                )
                for live in ids
            )
            await asyncio.gather(*places)

        staying = {name: f.ids(name, 150, start="S") for name in AB}
        coming = {name: f.ids(name, 400, start="S7") for name in AB}
        for name in AB:
            await fill(name, staying[name])
        stop = asyncio.Event()

        async def churn() -> None:
            """Lives between the others are born and swept, in both cells."""
            turn = 0
            while not stop.is_set():
                for name in AB:
                    store, ids = f.cell(name).store, coming[name][turn % 400 : turn % 400 + 20]
                    await fill(name, ids)
                    for live in ids[::2]:
                        await store.end_live(live=f"default/{live}")
                        await store.link.call("ZREM", store.keys.of("lives"), f"default/{live}")
                        await store.link.call("DEL", store.keys.of("live", f"default/{live}"))
                turn += 20
                await asyncio.sleep(0)

        churning = asyncio.create_task(churn())
        try:
            rows = await f.walk("/v1/lives?limit=37", "lives")
        finally:
            stop.set()
            await churning
        met = Counter(row["live_id"] for row in rows)
        assert [live for ids in staying.values() for live in ids if met[live] != 1] == []
        assert max(met.values()) == 1 and [*met] == sorted(met)
        assert {row["cell"] for row in rows if row["live_id"] in staying["b"]} == {"b"}
        one = f.ids("b", 1, start="S")[0]
        listed = await f.walk("/v1/lives?limit=3&worker=" + workers["b"].replace("#", "%23"), "lives")
        assert one in {row["live_id"] for row in listed} and {row["cell"] for row in listed} == {"b"}


async def test_workers_of_all_cells_are_one_list_and_each_is_found_in_its_cell(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, "a", "b", "c", infer=0) as f:
        made = {worker: name for name in f.names for worker in await f.workers(name, 3, capacity=4, start=f"{name}-w")}
        rows = await f.walk("/v1/workers?limit=2", "workers")
        assert {row["worker"]: row["cell"] for row in rows} == made
        assert [row["worker"] for row in rows] == sorted(made)
        worker = f.worker_id("c", "c-w1", 2)
        path = "/v1/workers/" + worker.replace("#", "%23")
        status, shown = await f.ask("GET", path)
        assert status == 200 and (shown["worker"], shown["cell"]) == (worker, "c")
        assert (await f.ask("POST", f"{path}/cordon"))[1] == {"worker": worker, "mode": "cordoned"}
        assert [row.mode for row in (await f.cell("c").records.fleet.snapshot()).workers].count("cordoned") == 1
        assert (await f.ask("GET", "/v1/workers/x%231"))[0] == 404
        assert (await f.get("/v1/pools/gpu"))["workers"] == 9
        assert [pool["capacity"] for pool in (await f.get("/v1/pools"))["pools"]] == [32], "without the cordoned one"


async def test_a_worker_id_of_two_cells_is_that_of_the_one_that_is_there(tmp_path: Path) -> None:
    """A machine that has moved: its earlier record is gone. A new term lifts the numbers of each cell above its floor,
    which does not differ by cell."""
    async with cell_fleet(tmp_path, infer=0) as f:
        for name in AB:
            assert (await f.ask("POST", f"/v1/store/new-term?cell={name}", {"term": 1}))[0] == 200
        [worker], again = [await f.workers(name, 1, capacity=4) for name in AB]
        assert again == [worker], "one WorkerID in two cells"
        await f.cell("a").store.set_worker(worker=worker, verb="exit")
        path = "/v1/workers/" + worker.replace("#", "%23")
        assert (await f.get(path))["cell"] == "b", "although the view of cell a may still have it"
        assert [row["cell"] for row in (await f.get("/v1/workers"))["workers"]] == ["b"]


async def test_lives_that_match_are_ended_in_all_cells_and_no_more_than_were_asked_for(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, "a", "b", "c", infer=0) as f:
        for name in f.names:
            await f.workers(name, 1, capacity=10)
        lives = sorted(live for name in f.names for live in f.ids(name, 4))
        for live in lives:
            assert (await f.place(live))[0] == 201
        assert (await f.ask("POST", "/v1/end-lives", {}))[1]["code"] == "UNBOUNDED"
        ended: list[str] = []
        body: dict[str, Any] = {"digital_id": "demo", "limit": 1, "after_pending": True}
        status, one = await f.ask("POST", "/v1/end-lives", body)
        assert status == 200 and one["live_ids"] == lives[:1] and one["more"], "one is one, although there are 3 cells"
        ended += one["live_ids"]
        while one["more"]:
            status, one = await f.ask("POST", "/v1/end-lives", {**body, "limit": 4, "after": one["next"]})
            assert status == 200 and len(one["live_ids"]) <= 4
            ended += one["live_ids"]
        assert ended == lives, "each once, by name"
        assert await f.walk("/v1/lives?limit=5&state=open", "lives") == []


# -- what is shown


async def test_cells_readiness_summary_metrics_and_replicas(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, dispatch=2) as f:
        await f.workers("a", 1, capacity=3)
        await f.workers("b", 2, capacity=4)
        for name, many in (("a", 1), ("b", 2)):
            for live in f.ids(name, many):
                assert (await f.place(live))[0] == 201
        for name in AB:
            await f.cell(name).context.fleet.refresh()
        cells = await f.cells_of()
        figures = {name: [each[of] for of in ("workers", "lives", "free", "capacity")] for name, each in cells.items()}
        assert [*cells] == [*AB] and figures == {"a": [1, 1, 2, 3], "b": [2, 2, 6, 8]}
        assert all(each["ready"] and each["home"] and not each["trouble"] for each in cells.values())
        other = await f.ask("GET", "/v1/cells?pool=other")
        assert [each["capacity"] for each in other[1]["cells"]] == [0, 0]
        for url in (*f.dispatch, *f.infer):
            async with f.http.get(f"{url}/readyz") as response:
                assert response.status == 200 and (await response.json())["cells"] == {"a": "", "b": ""}
        summary = await f.get("/v1/summary")
        assert (summary["cell"], summary["workers"], summary["lives"]["open"]) == ("a, b", 3, 3)
        assert summary["slots"] == {"load": 3, "capacity": 11, "free": 8}
        assert [(each["name"], each["free"]) for each in summary["pools"]] == [("gpu", 8)]
        assert [(each["name"], each["lives"]) for each in summary["cells"]] == [("a", 1), ("b", 2)]
        page = await f.text(f"{f.dispatch[0]}/metrics")
        assert 'dhsched_pool_capacity_slots{cell="a",pool="gpu"} 3.0' in page
        assert 'dhsched_pool_capacity_slots{cell="b",pool="gpu"} 8.0' in page
        assert page.count("# TYPE dhsched_pool_capacity_slots gauge") == 1
        assert 'dhsched_requests_total{endpoint="create_live",status="201"} 3.0' in page, "once for all cells"
        infer = await f.text(f"{f.infer[0]}/metrics")
        assert 'dhsched_pulls_granted{cell="a"} 0.0' in infer and 'dhsched_pulls_granted{cell="b"} 0.0' in infer
        told = await until_so(lambda: f.get("/v1/replicas"), lambda found: found["replicas"], "the controller's report")
        assert [(each["role"], each["ready"]) for each in told["replicas"]] == [("infer", True)]
        store = [await f.ask("GET", f"/v1/store{query}") for query in ("", "?cell=a", "?cell=b", "?cell=x")]
        assert [status for status, _ in store] == [200, 200, 200, 404]
        assert store[0][1]["home"] == cells["a"]["home"] and store[2][1]["home"] == cells["b"]["home"]
        status, problem = await f.ask("POST", "/v1/store/new-term", {"term": 1})
        assert status == 400 and "cell=NAME, one of a, b" in problem["detail"]
        status, begun = await f.ask("POST", "/v1/store/new-term?cell=b", {"term": 1})
        assert (status, begun["term"]) == (200, 2)


async def test_why_history_and_reassign_go_to_the_cell_of_the_live(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, dispatch=2, infer=0) as f:
        for name in AB:
            await f.workers(name, 2, capacity=4)
        for name in AB:
            [live] = f.ids(name, 1)
            _, placed = await f.place(live)
            for at, explained in ((0, "then"), (1, "now")):
                status, why = await f.ask("GET", f"/v1/lives/{live}/why", at=at)
                assert (status, why["cell"], why["explained"]) == (200, name, explained)
            [other] = {f.worker_id(name, "w0", 1), f.worker_id(name, "w1", 2)} - {placed["worker"]}
            body = {"expected_epoch": 1, "target": other}
            status, moved = await f.ask("POST", f"/v1/lives/{live}/reassign", body, at=1)
            assert (status, moved["worker"], moved["epoch"]) == (200, other, 2)
            rows = (await f.get(f"/v1/lives/{live}/history"))["generations"]
            assert [row["worker"] for row in rows] == [other, placed["worker"]]


async def test_events_of_all_cells_are_listed_and_followed_from_a_cursor(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, dispatch=2, infer=0) as f:

        async def say(name: str, kind: Kind, at: int = 0) -> None:
            events = f.cell(name, at).context.events
            events.say(kind, worker=f"w#{name}")
            await events.written()
            await asyncio.sleep(0.005)  # Events of two cells in one millisecond have no order.

        known: list[Kind] = ["brake_on", "brake_off", "worker_lost", "worker_gone"]
        for name, kind in zip("abab", known, strict=True):
            await say(name, kind)
        page = await f.get("/v1/events?after=0")
        assert [each["kind"] for each in page["events"] if each["kind"] in known] == known
        walked, after = [], "0"
        while (page := await f.get(f"/v1/events?limit=1&after={after}"))["events"]:
            walked += [each["kind"] for each in page["events"]]
            after = page["last"]
        assert [kind for kind in walked if kind in known] == known, "from page to page, none lost and none twice"
        assert (await f.ask("GET", "/v1/events?after=1-0,2-0,3-0"))[1]["code"] == "BAD_REQUEST"
        latest = await f.get("/v1/events?limit=2")
        assert [each["kind"] for each in latest["events"]] == known[-2:]
        url = f"{f.dispatch[0]}/v1/events"
        async with f.http.get(url, headers={**STREAM, "Last-Event-ID": latest["events"][0]["id"]}) as response:
            cursor, event = await next_event(response)
            assert event["kind"] == "worker_gone" and event["id"] == cursor == latest["last"]
            await say("b", "worker_registered", at=1)
            cursor, event = await next_event(response)
            assert event["kind"] == "worker_registered"
        await say("a", "worker_cordoned")
        url = f"{f.dispatch[1]}/v1/events"
        async with f.http.get(url, headers={**STREAM, "Last-Event-ID": cursor}) as response:
            assert (await next_event(response))[1]["kind"] == "worker_cordoned", "it goes on at another replica"


async def test_changes_of_all_cells_are_one_feed(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0, with_loops=True, replica={"worker_ttl_s": 3600}) as f:
        for name in AB:
            await f.workers(name, 1, capacity=4, start=name)
        async with f.http.get(f"{f.dispatch[0]}/v1/changes", headers=STREAM) as response:
            _, everything = await next_event(response)
            assert sorted(each["worker"] for each in everything["workers"]) == [
                f.worker_id("a", "a0"),
                f.worker_id("b", "b0"),
            ]
            for name in AB:
                assert (await f.place(f.ids(name, 1)[0]))[0] == 201
            lives: set[str] = set()
            while lives != {f.ids(name, 1)[0] for name in AB}:
                _, change = await next_event(response)
                lives |= {each["live_id"] for each in change.get("lives", [])}
        now = await f.get("/v1/changes")
        assert now["workers"] == 2
        [live] = f.ids("b", 1)
        assert (await f.ask("POST", f"/v1/lives/{live}/end"))[0] == 200
        url = f"{f.dispatch[0]}/v1/changes?after={now['cursor']}"
        async with f.http.get(url, headers=STREAM) as response:
            rows: list[Any] = []
            while not rows:
                rows = (await next_event(response))[1].get("lives", [])
            assert [(each["live_id"], each["state"]) for each in rows] == [(live, "departing")]


async def test_every_endpoint_of_one_cell_is_served_over_several(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0) as f:
        async with f.http.get(f"{f.dispatch[0]}/openapi.json") as response:
            here = (await response.json())["paths"]
        one = {each.name for each in f.cell("a").replica.endpoints()}
        assert {each.name for each in f.fronts[0].endpoints()} == one
        assert {said["operationId"] for path in here.values() for said in path.values()} >= one
        [known, *_] = f.cell("a").replica.endpoints()
        with pytest.raises(KeyError, match="not routed over cells"):
            f.fronts[0].handler(replace(known, name="new"))


async def test_the_audit_trail_has_each_change_once(tmp_path: Path) -> None:
    async with cell_fleet(tmp_path, infer=0) as f:
        for name in AB:
            await f.workers(name, 1, capacity=4)
            assert (await f.place(f.ids(name, 1)[0]))[0] == 201
        for name in AB:
            await f.cell(name).context.audit.written()
        rows = (await f.get("/v1/audit?endpoint=create_live"))["entries"]
        assert [row["status"] for row in rows] == [201, 201]
        first = (await f.get("/v1/audit?limit=1"))["entries"]
        assert [row["endpoint"] for row in first] == ["create_live"]


async def told_of_recoveries(f: CellFleet) -> list[tuple[str, str]]:
    page = await f.get("/v1/recoveries")
    return [(row["live_id"], row["need"]) for row in page["recoveries"]]


async def test_recoveries_of_all_cells_are_one_list(tmp_path: Path) -> None:
    """Nobody recovers anything here: no loops run."""
    async with cell_fleet(tmp_path, infer=0) as f:
        lives = {name: f.ids(name, 2) for name in AB}
        for name in AB:
            [worker] = await f.workers(name, 1, capacity=4)
            for live in lives[name]:
                assert (await f.place(live))[0] == 201
            assert isinstance(await f.cell(name).store.set_worker(worker=worker, verb="exit"), o.WorkerSet)
        wanted = sorted((live, "gone") for ids in lives.values() for live in ids)
        assert await told_of_recoveries(f) == wanted
        rows = await f.walk("/v1/recoveries?limit=1", "recoveries")
        assert [(row["live_id"], row["need"]) for row in rows] == wanted
