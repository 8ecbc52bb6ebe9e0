"""`dhsched store backup`, `verify` and `restore`, on a real server and a deployment that went on after the backup."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dhsched.errors import DhschedError, StoreIncompatible
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.store.backup import RESTORE_JUMP, back_up, read, restore, verify, write
from dhsched.store.keys import SCHEMA
from dhsched.store.link.address import Address
from dhsched.store.raw import read_state
from dhsched.store.steps.redis import RedisStore
from tests.harness.fleet import until, until_so
from tests.harness.processes import Process, Processes, until_consumed
from tests.harness.servers import empty_server, running_server

PAUSE_S = 30.0
CREATE = Create(digital_id="anna", fingerprint="f")


async def busy_cell(address: Address) -> None:
    """A Worker with two lives: one is claimed and has input, one waits to be claimed."""
    async with await RedisStore.open(address) as store:
        await ready_worker(store, capacity=4)
        for live in ("default/one", "default/two"):
            made = await store.place(
                live=live, operation=live.removeprefix("default/"), cause="create", create=CREATE, candidates=["A#1"]
            )
            assert isinstance(made, o.Committed)
        await store.pull(live="default/one", worker="A#1", epoch=1, after=0, controller="c")
        await store.append_input(live="default/one", kind="text", payload=b"a sentence", request="r1")


async def ready_worker(store: RedisStore, capacity: int) -> None:
    await store.register_worker(name="A", boot="b1", pool="gpu", capacity=capacity)
    await store.report(worker="A#1", boot="b1", starts_create=capacity)


async def test_a_backup_is_verified_and_restored_in_a_new_term(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "cell.backup"
    async with empty_server(kind) as server:
        await busy_cell(server.address)
        async with await RedisStore.open(server.address) as store:
            before = await read_state(store.link, "main")
        header, _ = await back_up(server.address, "main", file, pause_s=PAUSE_S)
        assert (header.cell, header.term, header.schema) == ("main", 1, SCHEMA)
        assert file.stat().st_mode & 0o777 == 0o600, "it has the secrets of the cell"
        found = await verify(read(file))
        assert (found.lives, found.workers, [*found.violations]) == (2, 1, [])

        with pytest.raises(DhschedError, match="--replace"):
            await restore(server.address, read(file))
        done = await restore(server.address, read(file), replace_cell=True)
        async with await RedisStore.open(server.address) as store:
            after = await read_state(store.link, "main")
            assert done.term == after.cell.term == 2
            assert (after.lives, after.slots, after.workers) == (before.lives, before.slots, before.workers)
            highest = max(before.cell.epoch_base, *(live.issued for live in before.lives.values()))
            assert after.cell.epoch_floor == done.floor > highest + RESTORE_JUMP
            assert after.cell.workers_issued > before.cell.workers_issued + RESTORE_JUMP
            assert after.cell.homes[-2].name.startswith("restored-"), "the server's own home comes after it"
            # What was issued before is void; what is issued now is above it.
            old = before.lives["default/one"]
            pulled = await store.pull(live="default/one", worker="A#1", epoch=old.epoch, after=0, controller="c")
            assert isinstance(pulled, o.Stale)
            moved = await store.place(
                live="default/one", operation="again", cause="recover", expected=old.epoch, candidates=["A#1"]
            )
            assert isinstance(moved, o.Committed) and moved.generation.epoch > done.floor


async def test_a_restore_into_another_server_that_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "cell.backup"
    async with empty_server("valkey") as server:
        await busy_cell(server.address)
        await back_up(server.address, "main", file, pause_s=PAUSE_S)
    async with running_server("valkey") as other:
        floors = {(await restore(other.address, read(file), replace_cell=again)).floor for again in (False, True)}
        assert len(floors) == 2, "two restores of one backup come to different numbers"


async def test_a_service_that_begins_the_cell_meanwhile_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dhsched.store import backup as backups

    file = tmp_path / "cell.backup"
    async with empty_server("valkey") as server:
        await busy_cell(server.address)
        await back_up(server.address, "main", file, pause_s=PAUSE_S)
        rows = backups._write_rows

        async def meanwhile(*given: Any) -> None:
            await rows(*given)
            async with await RedisStore.open(server.address):
                pass

        monkeypatch.setattr(backups, "_write_rows", meanwhile)
        with pytest.raises(DhschedError, match="stop every Dispatch"):
            await restore(server.address, read(file), replace_cell=True)


async def test_a_backup_is_one_moment_of_a_cell_that_changes(tmp_path: Path) -> None:
    """Lives are created and ended all the time; no invariant may be broken in any of the files."""
    async with empty_server("valkey") as server, await RedisStore.open(server.address) as store:
        await ready_worker(store, capacity=1000)
        going, made = True, 0

        async def change(who: int) -> None:
            nonlocal made
            while going:
                live, made = f"default/{who}-{made}", made + 1
                await store.place(
                    live=live,
                    operation=live.removeprefix("default/"),
                    cause="create",
                    create=CREATE,
                    candidates=["A#1"],
                )
                if made % 3:
                    await store.end_live(live=live)

        tasks = [asyncio.create_task(change(who)) for who in range(8)]
        try:
            for number in range(3):
                before = made
                await until(lambda before=before: made > before + 50, "changes")  # type: ignore[misc]
                await back_up(server.address, "main", tmp_path / f"{number}", pause_s=PAUSE_S)
        finally:
            going = False
            await asyncio.gather(*tasks)
        for number in range(3):
            found = await verify(read(tmp_path / f"{number}"))
            assert found.lives > 0 and [*found.violations] == []


async def test_a_pause_that_is_too_short_writes_no_file(tmp_path: Path) -> None:
    async with empty_server("valkey") as server:
        await busy_cell(server.address)
        with pytest.raises(DhschedError, match="--pause"):
            await back_up(server.address, "main", tmp_path / "cell.backup", pause_s=0.0)
        with pytest.raises(DhschedError, match="nothing to back up"):
            await back_up(server.address, "other", tmp_path / "cell.backup", pause_s=PAUSE_S)
        assert os.listdir(tmp_path) == []
        async with await RedisStore.open(server.address) as store:
            assert isinstance(await store.register_worker(name="B", boot="b2", pool="gpu", capacity=1), o.Registered)


async def test_a_file_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cell.backup"
    async with empty_server("valkey") as server:
        await busy_cell(server.address)
        await back_up(server.address, "main", file, pause_s=PAUSE_S)
    whole = file.read_bytes()
    for broken in (b"", whole[:-1], whole[: len(whole) // 2], whole.replace(b"default/one", b"default/own"), b"x" * 99):
        file.write_bytes(broken)
        with pytest.raises(DhschedError, match="not a whole backup"):
            read(file)
    file.write_bytes(whole)
    found = read(file)
    write(file, found._replace(header=type(found.header)(**{**fields(found.header), "schema": SCHEMA + 1})))
    with pytest.raises(StoreIncompatible, match="the version that wrote it"):
        read(file)


def fields(header: Any) -> dict[str, Any]:
    return {name: getattr(header, name) for name in header.__struct_fields__}


@pytest.mark.release
async def test_lives_go_on_from_their_backup_on_a_worker_that_has_gone_on(tmp_path: Path) -> None:
    """The deployment goes on after the backup. Then its store is restored on the same server: the services are started
    anew, the Worker has never stopped. What the backup has goes on, under new numbers; what it has not is gone."""
    file = tmp_path / "cell.backup"
    async with running_server("valkey") as server, Processes(server.address.url(), folder=tmp_path) as deployment:
        services = [await deployment.dispatch("d1"), await deployment.infer("i1")]
        worker = await deployment.worker("w1")
        assert isinstance(worker, Process)
        await deployment.configure({"anna": ("gpu",)})
        async with deployment.client() as client:
            await client.create("anna", live_id="kept", wait_s=30)
            await client.push("kept", "before the backup")
            await until_consumed(worker, "kept", "before the backup")
            await until_so(partial(client.get, "kept"), lambda live: live.acked == 1, "the ack")
            await back_up(server.address, "main", file, pause_s=PAUSE_S)
            await client.create("anna", live_id="lost", wait_s=30)
            await client.push("lost", "after the backup")
            await until_consumed(worker, "lost", "after the backup")
        for service in services:
            await service.stop()
        assert [*(await verify(read(file))).violations] == []
        await restore(server.address, read(file), replace_cell=True)
        for name in ("d1", "i1"):
            await deployment.restart(name)
        async with deployment.client() as client:
            await until_so(partial(client.get, "kept"), lambda live: live.epoch > RESTORE_JUMP, "a new generation", 60)
            await client.push("kept", "after the restore")
            await until_consumed(worker, "kept", "after the restore")
            assert [text for _, _, text in worker.consumed("kept")] == ["before the backup", "after the restore"]
            assert [live.live_id async for live in client.lives()] == ["kept"]


async def test_the_verbs_say_what_they_did(tmp_path: Path) -> None:
    file = str(tmp_path / "cell.backup")
    async with empty_server("valkey") as server:
        await busy_cell(server.address)
        store = ("--store", server.address.url())
        taken = await verb("backup", file, *store, "--pause", str(PAUSE_S), "--json")
        assert (taken["cell"], taken["term"]) == ("main", 1) and taken["bytes"] > 0
        found = await verb("verify", file, "--json")
        assert (found["lives"], found["workers"], found["violations"]) == (2, 1, [])
        done = await verb("restore", file, *store, "--replace", "--yes", "--json")
        assert (done["term"], done["keys"]) == (2, found["keys"])


async def verb(*words: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dhsched.cli", "store", *words), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, words
    return json.loads(said)
