"""Cells for people: a cluster of our own that is never left behind, the verbs of cells, and `up` with several."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dhsched import cli
from dhsched.access.key_file import KeyFile
from dhsched.cells.fixed import cell_of
from dhsched.cli.cells import refuse_bad_places
from dhsched.cli.sample_store import sample_store
from dhsched.client import Client
from dhsched.errors import BadSetting, DhschedError, StoreIncompatible, StoreRefused
from dhsched.local.deployment import Deployment
from dhsched.local.pids import alive
from dhsched.local.ports import free_port, free_ports
from dhsched.store.link.cluster import SLOTS
from dhsched.store.server.embedded_cluster import EmbeddedCluster
from dhsched.store.server.shards import Shard, choose_cells, read_shards, shard_of
from dhsched.store.steps.redis import RedisStore
from tests.harness.fleet import until, until_so
from tests.harness.processes import Process, children_of, start, until_consumed
from tests.harness.servers import empty_server

COLUMNS = 80
CELLS = "DHSCHED_CELLS"
# A process that runs a cluster, says which processes that are, and waits to be killed.
PARENT = """
import asyncio
from dhsched.local.ports import free_ports
from dhsched.store.server.embedded_cluster import EmbeddedCluster
async def main():
    async with EmbeddedCluster(free_ports(3)) as cluster:
        print(*(pid for node in cluster.nodes for pid in (node.pid, node.guardian_pid)), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CELLS, raising=False)


async def dhsched(*words: str, env: dict[str, str] | None = None) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env=env)


async def shown(*words: str, env: dict[str, str] | None = None) -> str:
    result = await dhsched(*words, env=env)
    if result.exception is not None:
        raise result.exception
    return result.stdout


async def all_gone(pids: Iterable[int]) -> None:
    left = [*pids]
    await until(lambda: not any(alive(pid) for pid in left), "the end of every process")


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhsched.cli.tables.screen_columns", lambda: COLUMNS)


# -- the cluster


async def test_a_cluster_of_our_own_serves_every_slot_to_those_who_have_its_password() -> None:
    async with EmbeddedCluster(free_ports(4)) as cluster:
        pids = [pid for node in cluster.nodes for pid in (node.pid, node.guardian_pid)]
        shards = await read_shards(cluster.address)
        ranges = sorted(each for shard in shards for each in shard.ranges)
        assert [first for first, _ in ranges] == [0, *(last + 1 for _, last in ranges[:-1])]
        assert ranges[-1][1] == SLOTS - 1
        assert [str(shard.primary) for shard in shards] == [f"127.0.0.1:{node.port}" for node in cluster.nodes]
        password = cluster.address.password or ""
        assert len(password) > 40
        assert not any(password in command_line(pid) for pid in pids)
        with pytest.raises(StoreRefused, match="NOAUTH"):
            await read_shards(replace(cluster.address, password=None))
        for cell in choose_cells(shards, 4):
            async with await RedisStore.open(cluster.address, cell=cell) as store:
                assert await store.records.config.rev() == 0
                address = shard_of(shards, cell)
                assert address is not None and store.link.server.cluster
        async with sample_store(cluster.address.url(), None, 3, lambda _what: None) as given:
            assert given.cells == tuple(choose_cells(shards, 3)) and given.servers == ()
            assert given.first_cell == given.cells[0]
    await all_gone(pids)


async def test_the_death_of_the_parent_leaves_no_node_behind() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE)
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in (await parent.stdout.readline()).split()]
        assert len(pids) == 6 and all(alive(pid) for pid in pids)
    finally:
        parent.kill()
        await parent.wait()
    await all_gone(pids)


@pytest.mark.parametrize("ports", [2, 17])
def test_a_cluster_has_a_majority_and_an_address_for_every_node(ports: int) -> None:
    with pytest.raises(ValueError, match=f"3 to 16 nodes, not {ports}"):
        EmbeddedCluster([*range(20_000, 20_000 + ports)])


# -- cells place


def crowd(shards: list[Shard], size: int) -> list[str]:
    """Return names of so many cells that one primary serves."""
    found: dict[str, list[str]] = {}
    for n in count(1):
        if (shard := shard_of(shards, f"x{n}")) is not None:
            some = found.setdefault(shard.id, [])
            some.append(f"x{n}")
            if len(some) == size:
                return some
    raise AssertionError


async def test_place_proposes_names_and_checks_names(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    async with EmbeddedCluster(free_ports(3)) as cluster:
        at = ("cells", "place", "--store", cluster.address.url())
        shards = await read_shards(cluster.address)
        names = choose_cells(shards, 3)
        printed = await shown(*at, "--count", "3")
        head, *rows, empty, _, proposal = printed.splitlines()
        assert head.split() == ["CELL", "SLOT", "PRIMARY", "REPLICAS"] and empty == ""
        assert [row.split()[0] for row in rows] == names
        assert {row.split()[2] for row in rows} == {f"127.0.0.1:{node.port}" for node in cluster.nodes}
        assert all(len(line) <= COLUMNS for line in printed.splitlines())
        assert proposal == f"  {CELLS}='{' '.join(names)}'"

        found = json.loads(await shown(*at, "--count", "4", "--json"))["cells"]
        assert sorted(Counter(each["primary"] for each in found).values()) == [1, 1, 2]
        assert [each["cell"] for each in found] == choose_cells(shards, 4)

        for given in ((*at, "--cells", " ".join(names), "--json"), (*at, "--json")):
            document = json.loads(await shown(*given, env={CELLS: " ".join(names)}))
            assert [each["cell"] for each in document["cells"]] == names

        crowded = crowd(shards, 2)
        result = await dhsched(*at, "--cells", " ".join(crowded))
        assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == crowded
        assert isinstance(result.exception, DhschedError)
        said = str(result.exception)
        assert said.startswith(f"cells {crowded[0]} and {crowded[1]} are both on 127.0.0.1:")
        assert "has no cell: move slot" in said and "cells place --count 2" in said

        for more, why in (
            ((), "no cells to look at"),
            (("--count", "2", "--cells", "a b"), "both given"),
            (("--cells", "a b=redis://h"), "cell b has a server of its own"),
            (("--cells", "a"), "names one cell"),
        ):
            with pytest.raises(BadSetting, match=why):
                await shown(*at, *more)


async def test_place_says_that_a_single_server_is_no_cluster() -> None:
    async with empty_server("valkey") as server:
        with pytest.raises(StoreIncompatible, match="without cluster mode, so every cell would be on this one server"):
            await shown("cells", "place", "--store", server.address.url(), "--count", "2")


def test_a_cell_whose_slot_nobody_serves_is_refused() -> None:
    with pytest.raises(DhschedError, match="no node of the cluster serves slot 7 of cell a"):
        refuse_bad_places([{"cell": "a", "slot": 7, "primary": "", "replicas": []}], [])


# -- cells ls


async def test_ls_shows_each_cell_and_why_one_is_not_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}"
    async with empty_server("valkey") as server:
        cells = ("a", "b", f"c={nowhere}")
        async with Deployment(server.address.url(), cells=cells, folder=tmp_path) as deployment:
            url = await (await deployment.dispatch("d1")).until_ready()
            await deployment.configure({"anna": ["gpu"]})
            await deployment.worker("w1", "--cell", "b", runtime="null", capacity=7)
            await deployment.until_workers(1)

            async def listed() -> Any:
                return json.loads(await shown("cells", "ls", "--json", "--url", url))["cells"]

            found = await until_so(listed, lambda rows: rows[1]["free"] == 7, "the Worker in cell b")
            assert [each["name"] for each in found] == ["a", "b", "c"]
            assert [each["ready"] for each in found] == [True, True, False]
            assert [each["workers"] for each in found] == [0, 1, 0]
            trouble = found[2]["trouble"]
            assert nowhere in trouble

            piped = (await shown("cells", "ls", "--url", url)).splitlines()
            assert piped[0].split() == ["NAME", "READY", "WORKERS", "LIVES", "FREE", "HOME", "TROUBLE"]
            assert piped[2].split()[:5] == ["b", "yes", "1", "0", "7"]
            assert piped[3].endswith(trouble)
            on_a_terminal(monkeypatch)
            table = (await shown("cells", "ls", "--url", url)).splitlines()
            assert len(table) == 4 and all(len(line) <= COLUMNS for line in table)
            assert [line.split()[0] for line in table] == ["NAME", "a", "b", "c"]


# -- up


async def test_up_refuses_what_does_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="--data-dir and --cells were both given"):
        await shown("up", "--cells", "2", "--data-dir", str(tmp_path))
    for number in ("1", "17"):
        assert (await dhsched("up", "--cells", number)).exit_code == 2
    async with empty_server("valkey") as server:
        words = ("up", "--any-port", "--cells", "2", "--store", server.address.url())
        up = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dhsched.cli", *words),
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, printed = await asyncio.wait_for(up.communicate(), 60)
        finally:
            if up.returncode is None:
                up.kill()
                await up.wait()
        assert up.returncode == 1
        assert printed.decode().startswith("dhsched: store unix://") and "without cluster mode" in printed.decode()


@pytest.mark.release
async def test_up_with_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell has a primary and a Worker of its own; what is killed is missed in its cell; then nothing is left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    up = await start("up", "--any-port", "--cells", "2", "--workers", "1", "--runtime", "echo")
    left: list[int] = []
    try:
        await until(lambda: any("live why" in line for line in up.printed), "a deployment", 90)
        rows = {line.split()[0]: line.split() for line in up.printed if " pid " in line}
        left = [*(int(words[2]) for words in rows.values()), *children_of(up.pid)]
        assert len({*left}) >= 11, "three nodes, each with a guardian, 2 dispatch, infer, 2 Workers"
        assert any("Every cell needs a Worker: 2 Workers instead of 1." in line for line in up.printed)
        await walk_over_cells(up, rows)
        left += children_of(up.pid)
    finally:
        up.kill()
        await up.ended()
    await all_gone(left)


async def walk_over_cells(up: Process, rows: dict[str, list[str]]) -> None:
    url, infer = rows["dispatch-1"][-1], rows["infer-1"][-1]

    async def cells() -> Any:
        return json.loads(await shown("cells", "ls", "--json", "--url", url))["cells"]

    def is_whole(found: Any) -> bool:
        return [(each["ready"], each["workers"]) for each in found] == [(True, 1), (True, 1)]

    found = await until_so(cells, is_whole, "a Worker of each cell in the replica's view")
    first, second = names = [each["name"] for each in found]
    assert [rows[f"worker-{n}"][-1] for n in (1, 2)] == names
    assert any(f"The cells are {first} and {second};" in line for line in up.printed)
    stores = {words[-1]: int(words[2]) for name, words in rows.items() if name.startswith("store-")}
    assert {*names} < stores.keys(), "each cell is on a node of its own, and the third node has none"
    ids = [f"l{n}" for n in range(50)]
    lives = {cell: next(each for each in ids if cell_of(names, f"default/{each}") == cell) for cell in names}
    async with Client([url], [infer], key=KeyFile().get(url)) as client:
        for n, (cell, live) in enumerate(lives.items(), 1):
            placed = await client.create("demo", live_id=live, wait_s=20)
            assert placed.worker.startswith(f"worker-{n}#")
            assert (await client.get(live)).cell == cell
            await client.push(live, "one")
            await until_consumed(up, live, "one")
        os.kill(int(rows["worker-1"][2]), signal.SIGKILL)
        await until(lambda: any("worker-1 is started again" in line for line in up.printed), "the Worker to come back")
        await client.push(lives[first], "two")
        await until_consumed(up, lives[first], "two")
        os.kill(stores[second], signal.SIGKILL)
        await until_so(cells, lambda now: [each["ready"] for each in now] == [True, False], "one cell to be missed")
        await client.push(lives[first], "three")
        await until_consumed(up, lives[first], "three")
    assert [text for _, _, text in up.consumed(lives[first])] == ["one", "two", "three"]
