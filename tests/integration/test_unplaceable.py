"""A live that no Worker may take, as things are configured, stands in nobody's way: it is in no line, and says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dhsched.ownership.limits import Limits
from tests.harness.fleet import Record, until_so
from tests.harness.recovering import Recovering, ready, recovering, verb, waiting

SOON = Limits(lease_ms=200, backoff_max_ms=500)
IN_GPU = {"pools": [{"pool": "gpu"}]}


async def put(f: Recovering, name: str, **body: Any) -> None:
    status, said = await f.post(f"{f.dispatch[0]}/v1/digital-ids/{name}", {**IN_GPU, **body}, put=True)
    assert status in (200, 201), said


async def delete(f: Recovering, name: str) -> None:
    async with f.http.delete(f"{f.dispatch[0]}/v1/digital-ids/{name}?force=true") as response:
        assert response.status == 204, await response.text()


async def make_unplaceable(f: Recovering, how: str) -> None:
    if how == "deleted":
        await delete(f, "demo")
    else:
        await put(f, "demo", required_labels=["gpu_class=none"])


async def create_other(f: Recovering, live: str) -> tuple[int, Any]:
    body = {"live_id": live, "digital_id": "other"}
    return await f.post(f"{f.dispatch[0]}/v1/lives?wait_s=30", body)


def only(found: Any) -> Any:
    [one] = found["recoveries"]
    return one


@pytest.mark.parametrize("how", ["deleted", "labels"])
async def test_who_waits_and_cannot_be_placed_any_more_leaves_the_line(tmp_path: Path, how: str) -> None:
    record = Record()
    async with recovering(tmp_path, replicas=2, limits=SOON, worker_ttl_s=2) as f:
        await put(f, "other")
        doomed = await f.start_worker(record, "doomed", capacity=1)
        await f.until("/v1/workers", lambda found: ready(found) == 1, "the first Worker")
        await f.create("orphan")
        await f.start_worker(record, "well", capacity=1)
        await f.until("/v1/workers", lambda found: ready(found) == 2, "the second Worker")
        assert (await create_other(f, "first"))[0] == 201
        await f.until("/v1/lives", lambda found: all(x["claimed"] for x in found["lives"]), "both claims")
        await doomed.kill()
        await f.until("/v1/recoveries", waiting, "the orphan in the line")

        await make_unplaceable(f, how)
        shown = only(await f.until("/v1/recoveries", lambda found: not waiting(found), "the orphan out of the line"))
        assert shown["live_id"] == "orphan" and shown["need"] == "lost" and "demo" in shown["unplaceable"], shown
        assert [(each["live_id"], each["unplaceable"]) for each in (await verb(f, "recoveries"))["recoveries"]] == [
            ("orphan", shown["unplaceable"])
        ]
        assert (await f.post(f"{f.dispatch[0]}/v1/lives/first/end"))[0] == 200
        status, said = await create_other(f, "second")
        assert status == 201, said
        tries = only(await f.get("/v1/recoveries"))["tries"]
        await f.until("/v1/recoveries", lambda found: only(found)["tries"] > tries + 1, "two tries more")
        told = await f.events("live_unplaceable")
        assert [(each["live_id"], each["numbers"]["reason"]) for each in told] == [("orphan", shown["unplaceable"])]

        await put(f, "demo")
        await f.until("/v1/recoveries", lambda found: only(found)["unplaceable"] == "", "what is right again")
        await f.start_worker(record, "new", capacity=1)
        await f.until("/v1/lives/orphan", lambda found: found["worker"].startswith("new#"), "the orphan's place")
        assert (await f.get("/v1/recoveries"))["waiting"] == {}


async def test_a_live_of_a_deleted_digital_id_that_loses_its_worker_closes_no_pool(tmp_path: Path) -> None:
    record = Record()
    async with recovering(tmp_path, replicas=1, limits=SOON, worker_ttl_s=2) as f:
        await put(f, "other")
        doomed = await f.start_worker(record, "doomed", capacity=1)
        await f.until("/v1/workers", lambda found: ready(found) == 1, "the first Worker")
        await f.create("orphan")
        await delete(f, "demo")
        await doomed.kill()
        shown = only(await f.until("/v1/recoveries", lambda found: found["recoveries"], "the orphan"))
        await f.start_worker(record, "well", capacity=4)
        for n in range(3):
            status, said = await create_other(f, f"L{n}")
            assert status == 201, said
        assert shown["waiting_for"] == [] and "demo" in shown["unplaceable"]
        await until_so(lambda: f.events("live_unplaceable"), lambda found: len(found) == 1, "the event, once")


async def test_a_pool_that_offers_as_many_candidates_as_there_may_be_recovers_its_lives(tmp_path: Path) -> None:
    """The Worker that holds the live's slot is named too: it must not be one too many."""
    record = Record()
    async with recovering(tmp_path, replicas=1, limits=SOON, worker_ttl_s=2) as f:
        put_pool = await f.post(f"{f.dispatch[0]}/v1/pools/gpu", {"candidates_max": 16}, put=True)
        assert put_pool[0] == 200, put_pool
        doomed = await f.start_worker(record, "doomed", capacity=1)
        await f.until("/v1/workers", lambda found: ready(found) == 1, "the first Worker")
        await f.create("a")
        for n in range(17):
            await f.start_worker(record, f"w{n}", capacity=1)
        await f.until("/v1/workers", lambda found: ready(found) == 18, "18 Workers")
        await doomed.kill()
        await f.until("/v1/lives/a", lambda found: not found["worker"].startswith("doomed#"), "another place")
