"""`dhsched doctor` and `dhsched top`, against a real store and a served replica."""

import asyncio
import itertools
import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dhsched import cli
from dhsched.cli.top import Sample, rates_of, shown
from dhsched.errors import DhschedError
from dhsched.infer.app import open_infer
from dhsched.infer.settings import InferSettings
from dhsched.local.ports import free_port
from tests.harness.fleet import until
from tests.harness.processes import start
from tests.harness.sentinels import promote, replicated, sentinel, several, watched_by
from tests.harness.servers import ask, empty_server, running_server
from tests.harness.serving import serving


async def dhsched(*words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli.app, [*words])


def by_check(result: Result) -> dict[str, Any]:
    return {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}


async def test_doctor_finds_a_healthy_deployment() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        url = f"http://127.0.0.1:{api.client.port}"
        nobody = f"http://127.0.0.1:{free_port()}"
        words = (
            "doctor",
            "--store",
            server.address.url(),
            "--url",
            url,
            "--infer",
            nobody,
            "--room-url",
            nobody,
            "--json",
        )
        found = by_check(await dhsched(*words))
        assert found["workers"]["state"] == "warning" and "run worker" in found["workers"]["remedy"]
        await api.configure()
        await api.workers(2, capacity=4)
        await api.context.fleet.refresh()
        result = await dhsched(*words)
        found = by_check(result)
    assert result.exit_code == 0, result.output
    assert {name for name, each in found.items() if each["state"] != "ok"} == {"infer"}
    assert found["infer"]["state"] == "warning" and "the port is free" in found["infer"]["found"]
    assert found["dispatch"]["found"] == f"d1 is ready at {url}"
    assert found["workers"]["found"] == "2 ready; 8 free slots" and "no replica" in found["store in use"]["found"]
    assert "run room" in found["room"]["remedy"]
    assert "valkey" in found["store"]["found"] and "differs" in found["clocks"]["found"]


async def test_doctor_says_what_is_broken_and_what_to_do() -> None:
    extra = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    async with (
        running_server("valkey", port=free_port(), extra=extra) as server,
        serving(server.address, allow_eviction=True) as api,
    ):
        served = f"http://127.0.0.1:{api.client.port}"
        result = await dhsched(
            *("doctor", "--store", server.address.url(), "--infer", served, "--json"),
            *("--url", "http://127.0.0.1:1"),
        )
        found = by_check(result)
    assert result.exit_code == 1
    assert found["store eviction"]["state"] == "broken" and "noeviction" in found["store eviction"]["remedy"]
    assert found["infer"]["state"] == "broken" and "is not infer" in found["infer"]["found"]
    unreachable = by_check(await dhsched("doctor", "--store", f"redis://127.0.0.1:{free_port()}", "--json"))
    assert unreachable["store"]["state"] == "broken" and unreachable["store"]["remedy"]


EVICTING = ("--maxmemory-policy", "allkeys-lru")


@pytest.mark.parametrize("role", ["dispatch", "infer"])
async def test_a_role_does_not_start_on_a_store_that_evicts_lives_unless_it_is_told_to(role: str) -> None:
    async with running_server("valkey", extra=EVICTING) as server:
        run = ("run", role, "--store", server.address.url(), "--port", "0")
        refused = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from dhsched.cli import main; main()", *run),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            printed, _ = await asyncio.wait_for(refused.communicate(), 30)
        finally:
            if refused.returncode is None:
                refused.kill()
        assert refused.returncode == 1, printed
        assert b"maxmemory-policy is allkeys-lru" in printed and b"--allow-eviction" in printed
        assert b"Traceback" not in printed
        if role == "dispatch":
            forced = await start(*run, "--allow-eviction")
            try:
                await until(lambda: forced.url, "the replica to listen")
            finally:
                await forced.stop()
        else:
            async with open_infer(InferSettings(store=server.address.url(), allow_eviction=True, access="open")):
                pass


async def test_a_controller_opens_no_store_that_evicts_lives() -> None:
    async with running_server("valkey", extra=EVICTING) as server:
        with pytest.raises(DhschedError, match="maxmemory-policy is allkeys-lru"):
            async with open_infer(InferSettings(store=server.address.url(), access="open")):
                raise AssertionError("it was opened")


async def test_a_store_that_evicts_only_what_has_a_ttl_is_taken_and_mentioned() -> None:
    extra = ("--maxmemory-policy", "volatile-lru")
    async with running_server("valkey", extra=extra) as server, serving(server.address):
        found = by_check(await dhsched("doctor", "--store", server.address.url(), "--json"))
    assert found["store eviction"]["state"] == "warning" and "noeviction" in found["store eviction"]["remedy"]


async def test_top_shows_pools_workers_and_rates() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        await api.workers(2, capacity=4)
        url = f"http://127.0.0.1:{api.client.port}"
        for n in range(3):
            assert (await api.create(f"L{n}"))[0] == 201
        worker = (await api("GET", "/v1/workers"))[1]["workers"][0]["worker"].replace("#", "%23")
        assert (await api("POST", f"/v1/workers/{worker}/cordon"))[0] == 200
        assert (await api("POST", f"/v1/workers/{worker}/uncordon"))[0] == 200
        await api.context.fleet.refresh()
        once = await dhsched("top", "--once", "--url", url)
        document = json.loads((await dhsched("top", "--json", "--url", url)).stdout)
    assert once.exit_code == 0, once.output
    assert "38%" in once.output and "2 Workers" in once.output and "0 lives wait" in once.output
    assert "█" in next(line for line in once.output.splitlines() if "2/4" in line), "a bar for each Worker"
    assert "worker_cordoned" in once.output.partition("Latest events")[2]
    assert document["counters"]["creates/s"] == 3


async def test_top_and_pool_ls_do_not_count_a_lost_worker_as_free() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        [lost, _] = await api.workers(2, capacity=4)
        [beat] = [row["beat"] for row in (await api("GET", "/v1/workers"))[1]["workers"] if row["worker"] == lost]
        await api.context.store.expire_worker(worker=lost, beat=beat)
        url = f"http://127.0.0.1:{api.client.port}"
        once = await dhsched("top", "--once", "--url", url)
        listed = await dhsched("pool", "ls", "--url", url)
    for result in (once, listed):
        header, row = next(
            (line, below)
            for line, below in itertools.pairwise(result.output.splitlines())
            if "FREE" in line and "CAPACITY" in line
        )
        assert row[header.index("FREE") :].split()[0] == "4", result.output
        assert row[header.index("CAPACITY") :].split()[0] == "4", result.output
        assert "1 lost (4 slots)" in row, result.output


def test_rates_are_sums_over_the_series_that_count() -> None:
    page = """# HELP dhsched_places_total Placements
dhsched_places_total{cause="create",outcome="Committed"} 7.0
dhsched_places_total{cause="create",outcome="Full"} 5.0
dhsched_refusals_total{reason="FULL"} 2.0
dhsched_refusals_total{reason="a \\"b\\" {c}"} 3.0
"""
    found = rates_of(page)
    assert (found["creates/s"], found["refusals/s"], found["recoveries/s"]) == (7, 5, 0)
    earlier = Sample(0.0, [], [], [], counters={**found, "creates/s": 1.0, "refusals/s": 9.0})
    from rich.console import Console

    console = Console(width=160)
    with console.capture() as captured:
        console.print(shown(Sample(2.0, [], [], [], counters=found), earlier))
    assert "creates/s 3.0" in captured.get() and "refusals/s 0.0" in captured.get()


def states(found: dict[str, Any], prefix: str) -> dict[str, tuple[str, str]]:
    """State and finding of the checks that begin with `prefix`, by the port that they are about."""
    return {
        name.rpartition(":")[2]: (each["state"], each["found"])
        for name, each in found.items()
        if name.startswith(prefix)
    }


@pytest.mark.release
async def test_doctor_says_what_each_host_of_the_store_is() -> None:
    async with replicated("valkey", 1) as (primary, replica):
        gone = free_port()
        address = several(gone, primary.port, replica.port)
        result = await dhsched("doctor", "--store", address.url(), "--json")
        found = by_check(result)
        assert "no high availability" in found["store address"]["remedy"]
        assert states(found, "store host") == {
            str(gone): ("warning", "Connection refused"),
            str(primary.port): ("ok", "a primary with 1 replica online"),
            str(replica.port): ("ok", "a replica"),
        }
        remedy = ""
        for _ in range(20):  # A busy machine lets a host answer too late for one look.
            found = by_check(await dhsched("doctor", "--store", replace(address, replicas=2).url(), "--json"))
            assert "store address" not in found
            remedy = found[f"store host 127.0.0.1:{primary.port}"]["remedy"]
            if "start it" not in remedy:
                break
        assert remedy == "replicas=2: start more replicas of it"
        await promote(replica)
        broken = by_check(await dhsched("doctor", "--store", address.url(), "--json"))["store"]
        assert broken["state"] == "broken" and "two primaries" in broken["found"]
        assert all(str(port) in broken["found"] for port in (gone, primary.port, replica.port))


async def test_doctor_says_what_a_store_with_replicas_lacks() -> None:
    async with replicated("valkey", 1) as (primary, _):
        address = replace(primary.tcp_address, replicas=1)
        found = by_check(await dhsched("doctor", "--store", address.url(), "--json"))
        assert found["store replicas"] == {"check": "store replicas", "state": "ok", "found": "1 online", "remedy": ""}
        assert found["store writes"]["state"] == "warning"
        assert "min-replicas-to-write 1" in found["store writes"]["remedy"]
        await ask(primary.port, "CONFIG", "SET", "min-replicas-to-write", 1)
        found = by_check(await dhsched("doctor", "--store", replace(address, replicas=2).url(), "--json"))
        assert found["store writes"]["state"] == "ok"
        assert found["store replicas"]["state"] == "broken"
        assert found["store replicas"]["found"] == "1 online, and replicas=2"
        found = by_check(await dhsched("doctor", "--store", primary.tcp_address.url(), "--json"))
        assert "store replicas" not in found and "store writes" not in found


async def test_doctor_says_what_each_sentinel_names() -> None:
    async with (
        running_server("valkey", port=free_port()) as old,
        running_server("valkey", port=free_port()) as new,
        sentinel("valkey", old.port, epoch=1) as behind,
        sentinel("valkey", new.port, epoch=2) as well,
    ):
        found = by_check(await dhsched("doctor", "--store", watched_by(behind, well).url(), "--json"))
    assert found["store"]["state"] == "ok" and "store address" not in found
    assert states(found, "store Sentinel") == {
        str(behind.port): ("warning", f"names 127.0.0.1:{old.port}, config-epoch 1"),
        str(well.port): ("ok", f"names 127.0.0.1:{new.port}, config-epoch 2"),
    }
