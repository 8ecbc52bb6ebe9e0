"""Migrations of the store's data, from a cell that the code of the older schema has written.

Schema 2 is that of the commit SCHEMA_2, whose package is built from `git archive` and runs with the dependencies of
this environment. After the migration every value of every record is what it was, every live goes on, and a migration
that was killed at any point goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dhsched.errors import DhschedError, StoreIncompatible
from dhsched.ownership import outcomes as o
from dhsched.ownership.invariants import of_state
from dhsched.store import backup as backups
from dhsched.store.keys import SCHEMA, Keys
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.migrations import run
from dhsched.store.raw import read_keys, read_state
from dhsched.store.steps.redis import RedisStore
from tests.harness.fleet import until
from tests.harness.processes import Process, Processes
from tests.harness.servers import kind, redis_with_release, running_server
from tests.harness.tree import ROOT
from tests.harness.versions import built_package
from tests.upgrade.old_cell import plain

__all__ = ["kind"]  # The fixture.

SCHEMA_2 = "c6959e1"
OLD_CELL = str(ROOT / "tests" / "upgrade" / "old_cell.py")
CALLS = 300
SEEDS = (1, 2, 3)
STEP_S = 90.0
TYPED = ("-m", "dhsched.cli", "store", "migrate", "--yes")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process of schema 2."""
    return {"PYTHONPATH": str(built_package(SCHEMA_2, tmp_path_factory.mktemp("schema-2")))}


async def written(address: Address, old: dict[str, str], seed: int) -> dict[str, Any]:
    """Let the old code write a cell; return the state of it, as the old code reads it."""
    words = (sys.executable, OLD_CELL, address.url(), str(seed), str(CALLS))
    process = await asyncio.create_subprocess_exec(*words, env=old, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), STEP_S)
    assert process.returncode == 0
    state: dict[str, Any] = json.loads(output.splitlines()[-1])
    return state


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Compare everything that the old code knew of the cell, but for its homes."""
    for record in before["lives"].values():
        if isinstance(record["blamed"], str):  # The old code kept one generation, not several.
            record["blamed"] = record["blamed"].split()
    for part, value in before.items():
        if part in ("lives", "workers"):
            known = {name: {field: after[part][name][field] for field in record} for name, record in value.items()}
            assert known == value, part
        elif part == "cell":
            assert {**after[part], "homes": value["homes"]} == value
        else:
            assert after[part] == value, part
    assert {*after["lives"]} == {*before["lives"]}


async def state_of(address: Address) -> Any:
    async with await Link.open(address, {}) as link:
        return await read_state(link, "main")


@pytest.mark.release
@redis_with_release
async def test_every_value_of_every_record_is_kept(kind: str, old: dict[str, str]) -> None:
    kinds: Counter[str] = Counter()
    for seed in SEEDS:
        async with running_server(kind) as server:
            before = await written(server.address, old, seed)
            told: list[run.Progress] = []
            [done] = await run.migrate(server.address, "main", batch=5, tell=told.append)
            lives = len(before["lives"])
            assert (done.source, done.target, done.done, done.total) == (2, 3, lives, lives)
            assert [each.done for each in told] == [min(5 * (n + 1), lives) for n in range(lives // 5 + 1)]
            state = await state_of(server.address)
            assert_same(before, plain(state))
            assert [*of_state(state)] == []
            assert all(live.created_at for live in state.lives.values())
            for record in before["lives"].values():
                kinds.update(name for name, value in record.items() if value)
                kinds.update([record["state"]])
                kinds.update(["hold"] if record["move"] and record["move"]["hold"] else [])
            assert await run.migrate(server.address, "main") == [], "there is nothing left to do"
    wanted = {
        "active",
        "pending",
        "move",
        "hold",
        "suspect",
        "waits",
        "fallback",
        "dead",
        "producers",
        "saved",
        "history",
    }
    missing = ({*wanted, "open", "closing", "ended"}) - {*kinds}
    assert not missing, f"the old code wrote no live with {missing}: {kinds}"


@pytest.mark.release
async def test_every_live_goes_on_and_no_number_is_issued_again(old: dict[str, str]) -> None:
    for seed in SEEDS:
        async with running_server("valkey") as server:
            before = await written(server.address, old, seed)
            await run.migrate(server.address, "main", batch=3)
            async with await RedisStore.open(server.address) as store:
                for number in range(len(before["lives"])):
                    made = await store.register_worker(name=f"n{number}", boot=f"n{number}", pool="new", capacity=1)
                    assert isinstance(made, o.Registered)
                    assert int(made.worker.partition("#")[2]) > before["cell"]["workers_issued"]
                    await store.report(worker=made.worker, boot=f"n{number}", starts_create=9, starts_recover=9)
                for name, live in before["lives"].items():
                    if live["state"] == "ended":
                        continue
                    moved = await store.place(
                        live=name, operation="on", cause="reassign", expected=live["epoch"], pools=["new"]
                    )
                    assert isinstance(moved, o.Committed), (name, moved)
                    assert moved.generation.epoch > live["issued"]
                    await consume(store, name, moved, [item[9:] for item in live["pending"]], live)
                state = await read_state(store.link, "main")
                assert [*of_state(state)] == []
                for name, live in before["lives"].items():
                    assert [*map(plain, state.lives[name].dead)] == live["dead"], "dead letters are still there"


async def consume(store: RedisStore, name: str, moved: o.Committed, wanted: list[str], live: dict[str, Any]) -> None:
    """Pull a live on its new Worker, consume everything, and compare it with what was pending."""
    worker, epoch = moved.generation.worker, moved.generation.epoch
    pulled = await store.pull(live=name, worker=worker, epoch=epoch, after=0, controller="c")
    assert isinstance(pulled, o.Pulling), (name, pulled)
    assert pulled.after == live["acked"] and plain(pulled.saved) == live["saved"]
    got: list[str] = []
    at = pulled.after
    mark: dict[str, bytes] = {}
    while len(got) < len(wanted):
        pull = {"live": name, "worker": worker, "epoch": epoch}
        given = await store.release_input(**pull, pull_no=pulled.pull_no, after=at, credit=100, **mark)  # type: ignore[arg-type]
        assert isinstance(given, o.Items), (name, given)
        assert given.first == at + 1
        for item in given.items:
            got.append(plain(item)[9:])
            at, mark = at + 1, {"mark": item[1:9]}
        acked = await store.ack_input(**pull, n=at, **mark)  # type: ignore[arg-type]
        assert isinstance(acked, o.Acked), (name, acked)
    assert got == wanted, name


class Killed(Exception):
    """The migration ends here, as if its process were killed between two calls."""


@pytest.mark.release
async def test_a_migration_that_was_broken_off_after_any_call_goes_on(old: dict[str, str]) -> None:
    async with running_server("valkey") as server:
        before = await written(server.address, old, SEEDS[0])
        for done in range(1, len(before["lives"])):

            def tell(progress: run.Progress, done: int = done) -> None:
                assert progress.done == done, "it goes on where it was"
                raise Killed

            with pytest.raises(Killed):
                await run.migrate(server.address, "main", batch=1, tell=tell)
            if done == 2:
                await assert_nobody_uses_it(server.address, old)
        await asyncio.gather(*(run.migrate(server.address, "main", batch=1) for _ in range(2)))
        assert_same(before, plain(await state_of(server.address)))


async def assert_nobody_uses_it(address: Address, old: dict[str, str]) -> None:
    """Between two schemas, both versions are refused with a sentence, and nothing is backed up."""
    with pytest.raises(
        StoreIncompatible, match=r"schema 2>3, .* not finished, run `dhsched store migrate --cell main`"
    ):
        await RedisStore.open(address)
    with pytest.raises(DhschedError, match="between two schemas"):
        await backups.back_up(address, "main", Path("never"), pause_s=30.0)
    words = (sys.executable, OLD_CELL, address.url(), "1", "1")
    process = await asyncio.create_subprocess_exec(*words, env=old, stderr=asyncio.subprocess.PIPE)
    _, errors = await asyncio.wait_for(process.communicate(), STEP_S)
    assert process.returncode == 1 and b"holds data of schema 2>3" in errors


@pytest.mark.release
async def test_a_process_that_is_killed_again_and_again(old: dict[str, str]) -> None:
    async with running_server("valkey") as server:
        before = await written(server.address, old, SEEDS[1])
        code, kills = -signal.SIGKILL, 0
        while code == -signal.SIGKILL:
            words = (sys.executable, *TYPED, "--batch", "1", "--store", server.address.url(), "--json")
            process = await asyncio.create_subprocess_exec(
                *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            assert process.stdout is not None and process.stderr is not None
            for _ in range(4):
                await asyncio.wait_for(process.stderr.readline(), STEP_S)
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    # Not `process.kill`: if the process has just ended, it takes the exit code from the loop.
                    os.kill(process.pid, signal.SIGKILL)
                kills += 1
            output = await process.stdout.read()
            code = await process.wait()
        assert code == 0 and kills > 1
        if output:
            assert json.loads(output)["schema"] == str(SCHEMA)
        assert_same(before, plain(await state_of(server.address)))


@pytest.mark.release
async def test_a_backup_from_before_the_migration_is_verified_restored_and_migrated(
    old: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "old.backup"
    async with running_server("valkey") as server, running_server("valkey") as other:
        before = await written(server.address, old, SEEDS[2])
        await backups.back_up(server.address, "main", file, pause_s=30.0)
        found = await backups.verify(backups.read(file))
        assert (found.lives, [*found.violations]) == (len(before["lives"]), [])
        await backups.restore(other.address, backups.read(file))
        with pytest.raises(StoreIncompatible, match="run `dhsched store migrate"):
            await RedisStore.open(other.address)
        await run.migrate(other.address, "main")
        state = plain(await state_of(other.address))
        assert state["cell"]["term"] == before["cell"]["term"] + 1
        assert_same({"lives": before["lives"]}, state)


async def test_what_is_not_there_or_not_known_is_refused() -> None:
    async with running_server("valkey") as server:
        with pytest.raises(DhschedError, match="nothing to migrate"):
            await run.migrate(server.address, "main")
        async with await RedisStore.open(server.address):
            pass
        assert await run.read_schema(server.address, "main") == str(SCHEMA)
        async with await Link.open(server.address, {}) as link:
            for schema in ("1", "4", "3>4", "one"):
                await link.call("HSET", Keys("main").cell, "schema", schema)
                before = await read_keys(link, Keys("main"))
                with pytest.raises(StoreIncompatible, match="nothing was changed: use the version that wrote it"):
                    await run.migrate(server.address, "main")
                assert await read_keys(link, Keys("main")) == before


# -- services


@asynccontextmanager
async def old_services(old: dict[str, str], tmp_path: Path) -> AsyncIterator[tuple[Address, Processes, list[Process]]]:
    """A Dispatch replica and an Infer-Controller of schema 2, on a store of their own."""
    async with running_server("valkey") as server, Processes(server.address.url(), folder=tmp_path) as deployment:
        services = [await deployment.dispatch("d1", environment=old), await deployment.infer("i1", environment=old)]
        for service in services:
            await service.until_ready()
        yield server.address, deployment, services  # type: ignore[misc]


@pytest.mark.release
async def test_a_cell_in_use_is_refused(old: dict[str, str], tmp_path: Path) -> None:
    async with old_services(old, tmp_path) as (address, _, [dispatch, infer]):
        with pytest.raises(
            DhschedError, match="in use by Infer-Controller i1, a Dispatch replica; nothing was changed"
        ):
            await run.migrate(address, "main")
        await dispatch.stop()
        infer.signal(signal.SIGKILL)
        assert await infer.ended(STEP_S) != 0
        with pytest.raises(DhschedError, match="in use by Infer-Controller i1; nothing was changed"):
            await run.migrate(address, "main")  # It has said a moment ago that it is there.
        async with await Link.open(address, {}) as link:
            await link.call("DEL", Keys("main").of("controllers"))  # As if that moment had passed.
        assert [each.target for each in await run.migrate(address, "main")] == [SCHEMA]


@pytest.mark.release
async def test_a_service_that_was_suspended_meanwhile_cannot_write(
    old: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came between the look at who is there and the beginning, and was suspended before it noticed anything."""
    async with old_services(old, tmp_path) as (address, deployment, services):
        await deployment.worker("w1", environment=old)
        await deployment.configure({"anna": ("gpu",)})
        async with deployment.client() as client:
            await client.create("anna", live_id="before", wait_s=30)
            for service in services:
                service.signal(signal.SIGSTOP)

            async def nobody(*_: Any) -> None:
                pass

            monkeypatch.setattr(run, "_refuse_users", nobody)
            await run.migrate(address, "main")
            async with await RedisStore.open(address) as store:
                before = await read_keys(store.link, store.keys)
                for service in services:
                    service.signal(signal.SIGCONT)
                with pytest.raises(DhschedError):
                    await client.create("anna", live_id="after")
                after = await read_keys(store.link, store.keys)
                assert {*after} - {*before} == set() and after["live:default/before"] == before["live:default/before"]


@pytest.mark.release
@pytest.mark.timeout(600)
async def test_a_deployment_goes_on_after_a_migration(old: dict[str, str], tmp_path: Path) -> None:
    """Services and one Worker of schema 2 are stopped, another Worker never is. All goes on with this version."""
    lives = [f"l{n}" for n in range(4)]
    async with old_services(old, tmp_path) as (address, deployment, services):
        workers = [await deployment.worker(name, environment=old) for name in ("w1", "w2")]
        await deployment.configure({"anna": ("gpu",)})
        async with deployment.client() as client:
            for live in lives:
                await client.create("anna", live_id=live, wait_s=30)
                await client.push(live, f"{live} 1", boundary=True)
                await until(lambda live=live: consumed(workers, live) == [f"{live} 1"], live, STEP_S)  # type: ignore[misc]
            workers[1].signal(signal.SIGKILL)  # What it is given from now on stays pending.
            for live in lives:
                await client.push(live, f"{live} 2", boundary=True)
        for service in services:
            await service.stop()
            await deployment.remove(service.name)
        words, said = (sys.executable, *TYPED, "--store", address.url()), b"in use by"
        while b"in use by" in said:  # A controller of schema 2 stays listed for some seconds after its end.
            process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
            _, said = await asyncio.wait_for(process.communicate(), STEP_S)
        assert process.returncode == 0 and b"schema 2 to 3: 4 of 4 lives" in said, said
        await deployment.dispatch("d2")
        await deployment.infer("i2")
        workers.append(await deployment.worker("w3"))
        async with deployment.client() as client:
            for live in lives:
                await client.push(live, f"{live} 3", boundary=True)
                wanted = [f"{live} {n}" for n in (1, 2, 3)]
                await until(lambda live=live, wanted=wanted: consumed(workers, live) == wanted, live, STEP_S)  # type: ignore[misc]


def consumed(workers: list[Process], live: str) -> list[str]:
    """What was consumed of a live, each item once, in the order of its numbers."""
    return [text for _, text in sorted({(seq, text) for each in workers for _, seq, text in each.consumed(live)})]


@pytest.mark.release
async def test_up_says_which_command_to_run(old: dict[str, str]) -> None:
    async with running_server("valkey") as server:
        await written(server.address, old, SEEDS[0])
        words = (sys.executable, "-m", "dhsched.cli", "up", "--any-port", "--store", server.address.url())
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await asyncio.wait_for(process.communicate(), STEP_S)
        assert process.returncode == 1, output
        assert b"run `dhsched store migrate --cell main`" in output, output
