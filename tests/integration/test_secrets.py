"""Secrets stay with those they are for: not in a child's environment, not in `ps`, not behind a symbolic link; and a
refusal tells an app nothing about others."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from dhsched.access.ring import open_ring
from dhsched.cli.sample import UpSettings, sample
from dhsched.infer.app import open_infer
from dhsched.infer.settings import InferSettings
from dhsched.links.messages import Register, Registered, encode, read_from_dispatch
from dhsched.local.ports import free_port
from dhsched.room.app import open_room
from dhsched.room.settings import RoomSettings
from dhsched.store.link.address import Address, parse_address
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.tokens import Publishing, Tokens
from dhsched.types import Generation
from dhsched.worker.exec import Exec
from tests.browser.testcard import begin
from tests.harness.fleet import fleet, until
from tests.harness.keyed import bearer, keyed
from tests.harness.processes import Process, start
from tests.harness.servers import empty_server, running_server

TELLS = """
import json, os, sys
print(json.dumps(dict(os.environ)), file=open(sys.argv[1], "w"), flush=True)
for line in sys.stdin:
    if "close" in line:
        break
"""


async def test_a_child_is_given_no_key_and_what_was_named(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("DHSCHED_WORKER_KEY", "DHSCHED_STORE", "AWS_SECRET_ACCESS_KEY", "HF_HOME", "HF_TOKEN", "MODEL"):
        monkeypatch.setenv(name, "given")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    script, told = tmp_path / "tells.py", tmp_path / "told"
    script.write_text(TELLS)
    async with fleet(tmp_path) as f:
        await f.start_worker(Exec(f"{sys.executable} {script} {told}"), "a", exec_env="MODEL,HF_*")
        await f.create("L")
        await until(lambda: told.exists() and told.read_text().endswith("\n"), "what the child is given")
    found = json.loads(told.read_text())
    assert "given" not in {found.get(name) for name in ("DHSCHED_WORKER_KEY", "DHSCHED_STORE", "AWS_SECRET_ACCESS_KEY")}
    assert not [name for name in found if name.startswith("DHSCHED_")]
    assert (found["MODEL"], found["HF_HOME"], found["CUDA_VISIBLE_DEVICES"]) == ("given", "given", "3")
    assert found["PATH"] == os.environ["PATH"]


@pytest.mark.release
async def test_processes_of_up_have_no_password_in_their_arguments() -> None:
    async with running_server("valkey", extra=("--requirepass", "s3cret-word")) as server:
        url = Address(scheme="unix", path=server.address.path, password="s3cret-word").url()
        settings = UpSettings(store=url, access="open", dispatch_ports=(0, 0), infer_port=0, workers=1)
        async with sample(settings, lambda _name, _line: None) as made:
            assert len(made.processes.processes) == 4
            for process in made.processes.processes:
                assert b"s3cret-word" not in arguments_of(process.pid), process.name


async def test_a_store_with_a_port_has_a_password_that_only_its_user_can_read(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def run() -> tuple[Process, str, Address]:
        process = await start("run", "store", "--port", str(port), "--data", str(data))
        await until(lambda: process.printed, "the store")
        said = process.printed[0].strip()
        return process, said, parse_address(said)

    port = free_port()
    process, said, address = await run()
    try:
        assert said.startswith("file://") and address.port == port and address.password
        assert address.password not in said
        assert stat.S_IMODE(os.stat(said.removeprefix("file://")).st_mode) == 0o600
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PING\r\n")
        assert (await reader.readline()).startswith(b"-NOAUTH")
        writer.close()
        async with await RedisStore.open(said) as store:
            assert await store.link.call("PING")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            assert address.password.encode() not in arguments_of(int(pid))
    finally:
        await process.stop()
    again, _, after = await run()
    await again.stop()
    assert after.password == address.password, "kept with the data, so that its users go on"


def arguments_of(pid: int) -> bytes:
    """What `ps` shows of a process; nothing of one that has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_nobody_else_can_read_the_data_of_a_store(tmp_path: Path) -> None:
    """It has the secrets in it that sign tokens, and all that was said."""
    before = os.umask(0o022)
    try:
        async with Embedded(tmp_path / "data") as server, await RedisStore.open(server.address) as store:
            await open_ring(store.link, store.keys)
            found = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
            assert any(each.suffix == ".aof" for each in found)
            assert not [each for each in found if stat.S_IMODE(each.stat().st_mode) & 0o077]
    finally:
        os.umask(before)


async def test_revoking_a_key_ends_publishing(server: Address) -> None:
    """The token that came with a claim is worth what the key is worth that its Worker registered with. Who publishes is
    cut off, and does not come back."""
    async with keyed(server) as k, AsyncExitStack() as stack:
        admin, key_of_room = await k.role("admin"), await k.key("room")
        room = bearer(await k.token(key_of_room))
        url = str(k.api.client.make_url("")).rstrip("/")
        made = await stack.enter_async_context(
            open_room(RoomSettings(dispatch=url, key=key_of_room, confirm_s=0.2, deadline_s=30))
        )
        at = await stack.enter_async_context(TestClient(TestServer(made.app)))
        assert (await k.ask("PUT", "/v1/pools/gpu", admin, {}))[0] == 201
        assert (await k.ask("PUT", "/v1/digital-ids/anna", admin, {"pools": [{"pool": "gpu"}]}))[0] == 201
        key = await k.key("worker", names="gpu-*", pool="gpu")
        shown = {"Authorization": f"Bearer {await k.token(key)}"}
        async with k.api.client.ws_connect("/v1/workers/link", headers=shown) as socket:
            await socket.send_bytes(encode([Register(name="gpu-1", boot="b1", pool="gpu", capacity=2)]))
            [said] = read_from_dispatch((await socket.receive()).data)
            assert isinstance(said, Registered)
        tokens = Tokens(k.ring)
        boot = (await tokens.read(said.token)).boot
        assert boot.key == key.split("_")[1]
        await k.api.workers(1, capacity=10)
        body = {"digital_id": "anna", "live_id": "L"}
        status, placed = await k.ask("POST", "/v1/lives", admin, body)
        assert status == 201, placed
        generation = Generation(placed["worker"], placed["epoch"])
        token = tokens.issue_publish(Publishing("default/L", generation, boot.key))
        assert (await k.ask("POST", "/v1/publishing", room, {"token": token}))[0] == 200
        socket = await stack.enter_async_context(at.ws_connect("/v1/publish", headers=bearer(token)))
        await socket.send_str(begin("default/L", generation.epoch))
        await until(lambda: made.rooms.room("default/L").in_use, "the publisher")
        assert (await k.ask("DELETE", f"/v1/keys/{boot.key}", admin))[0] == 204
        async with asyncio.timeout(30):
            async for _ in socket:
                pass
        assert socket.close_code == 4401
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await at.ws_connect("/v1/publish", headers=bearer(token))
        assert refused.value.status == 401
        status, problem = await k.ask("POST", "/v1/publishing", room, {"token": token})
        assert status == 401 and "revoked" in problem["detail"]


async def test_a_refusal_tells_an_app_nothing_about_others(server: Address) -> None:
    async with keyed(server) as k:
        admin, app = await k.role("admin"), await k.role("app", tenant="acme")
        assert (await k.ask("PUT", "/v1/pools/secret-pool", admin, {}))[0] == 201
        body = {"pools": [{"pool": "secret-pool"}]}
        assert (await k.ask("PUT", "/v1/digital-ids/anna", admin, body))[0] == 201
        status, problem = await k.ask("POST", "/v1/lives", app, {"digital_id": "anna", "live_id": "L"})
        assert (status, problem["code"]) == (503, "FULL") and "wait_s" in problem["detail"]
        assert not {"pools", "refusals"} & {*problem} and "secret-pool" not in json.dumps(problem)
        status, problem = await k.ask("POST", "/v1/lives", admin, {"digital_id": "anna", "live_id": "L"})
        assert (status, problem["code"]) == (503, "FULL") and "secret-pool" in problem["detail"]
        picky = {"pools": [{"pool": "secret-pool"}], "required_labels": ["big"]}
        assert (await k.ask("PUT", "/v1/digital-ids/anna", admin, picky))[0] == 200
        status, problem = await k.ask("POST", "/v1/lives", app, {"digital_id": "anna", "live_id": "L"})
        assert (status, problem["code"]) == (422, "NO_ELIGIBLE_POOL") and "secret-pool" not in json.dumps(problem)


async def test_the_stores_url_may_be_in_a_file(tmp_path: Path) -> None:
    async with empty_server("valkey") as server:
        (tmp_path / "store").write_text(server.address.url() + "\n")
        url = f"file://{tmp_path / 'store'}"
        async with open_infer(InferSettings(store=url)):
            pass
        role = await start("run", "dispatch", "--store", url, "--port", "0", "--log-level", "error")
        try:
            await until(lambda: role.url, "the replica to listen")
        finally:
            await role.stop()
