"""Keys without ceremony: what one user starts on one machine asks for a key, and finds the one that it made.

And a Worker that will never be let in says what it lacks, and ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dhsched.access.development import NOTE
from dhsched.access.key_file import KeyFile
from dhsched.access.ring import open_ring
from dhsched.client import Client
from dhsched.store.link.address import Address
from dhsched.store.steps.redis import RedisStore
from tests.harness.fleet import until
from tests.harness.processes import ROOT, Process, start
from tests.harness.servers import empty_server

START_S = 60.0
RUNTIME = """
from dhsched.worker import Session, run


async def avatar(session: Session) -> None:
    async for item in session.inputs():
        print("spoken", item.text, flush=True)


run(avatar, pool="gpu", capacity=4)
"""


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key file of this test alone, in its environment and in that of its processes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DHSCHED_LOG_LEVEL", "warning")
    for name in ("DHSCHED_KEY", "DHSCHED_ACCESS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


async def run(*words: str) -> Process:
    """`dhsched run ...`, listening."""
    process = await start("run", *words, "--port", "0")
    await until(lambda: process.url or process.returncode is not None, " ".join(words), START_S)
    assert process.url, f"{words} ended"
    return process


async def verb(*words: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from dhsched.cli import main; main()", *words, "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(process.communicate(), START_S)
    assert process.returncode == 0, words
    return json.loads(said)


async def status(url: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        return response.status


async def admins(address: Address) -> list[str]:
    async with await RedisStore.open(address) as store:
        ring = await open_ring(store.link, store.keys)
        return [key.note for key in ring.api_keys.values() if key.role == "admin"]


@pytest.mark.release
async def test_what_is_run_here_asks_for_a_key_and_everybody_here_finds_it(at_home: Path) -> None:
    """Dispatch, Infer, a Worker, a room, the verbs and the client, without a word about keys."""
    async with empty_server("valkey") as server:
        store = ("--store", server.address.url())
        started = [await run("dispatch", *store)]
        try:
            started += [await run("dispatch", *store), await run("infer", *store)]
            first, second, infer = (each.url for each in started)
            started.append(await run("room", "--dispatch", f"{first},{second}", "--infer", infer))
            room = started[-1].url
            for url in (f"{first}/v1/lives", f"{second}/v1/keys", f"{infer}/v1/lives/L/events"):
                assert await status(url) == 401, "it is asked for"
            worker = ("worker", "--runtime", "echo", "--pool", "gpu", "--capacity", "4", "--name", "a")
            started.append(await start("run", *worker, "--dispatch", first, "--locks", str(at_home)))
            await verb("pool", "put", "gpu", "--url", first)
            await verb("digital-id", "put", "anna", "--pool", "gpu", "--url", second)
            await verb("live", "create", "anna", "--id", "L", "--wait", "30", "--url", first)
            async with Client([second], [infer]) as client:
                await client.push("L", "hello")
                viewer = await client.viewer_token("L", ["watch", "say"])
            await until(lambda: any("hello" in line for line in started[-1].printed), "the item at the Worker")
            async with (
                aiohttp.ClientSession() as http,
                http.post(
                    f"{room}/v1/lives/L/text",
                    json={"text": "typed"},
                    headers={"Authorization": f"Bearer {viewer.token}"},
                ) as response,
            ):
                assert response.status == 200, await response.text()
            await until(lambda: any("typed" in line for line in started[-1].printed), "what a viewer typed")
            assert await admins(server.address) == [NOTE], "all of them share one"
            file = KeyFile()
            assert file.path.stat().st_mode & 0o777 == 0o600
        finally:
            for each in reversed(started):
                await each.stop()
        # The same store once more: the key is still known.
        again = await run("dispatch", *store)
        try:
            assert (await verb("pool", "ls", "--url", again.url))["pools"]
            assert await admins(server.address) == [NOTE]
        finally:
            await again.stop()


async def test_a_deployment_with_keys_of_its_own_gets_no_other(at_home: Path) -> None:
    async with empty_server("valkey") as server:
        async with await RedisStore.open(server.address) as store:
            ring = await open_ring(store.link, store.keys)
            await ring.create(role="admin", note="the operator's")
        replica = await run("dispatch", "--store", server.address.url())
        try:
            assert await status(f"{replica.url}/v1/lives") == 401
            assert await admins(server.address) == ["the operator's"] and KeyFile().get(replica.url) == ""
        finally:
            await replica.stop()


@pytest.mark.release
async def test_open_and_unwritable_are_no_obstacle(at_home: Path) -> None:
    replica = await run("dispatch", "--access", "open")
    try:
        assert await status(f"{replica.url}/v1/lives") == 200 and not KeyFile().path.exists()
    finally:
        await replica.stop()
    (at_home / "state").write_text("a file, where the folder should be")
    replica = await run("dispatch")
    try:
        assert await status(f"{replica.url}/v1/lives") == 401, "it serves: a key can be made at the store"
    finally:
        await replica.stop()


# -- Workers


async def script(at: Path, text: str, **environment: str) -> tuple[asyncio.subprocess.Process, list[str]]:
    """`python my_runtime.py`, and what it prints on either output."""
    (at / "my_runtime.py").write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(at / "my_runtime.py")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "DHSCHED_WORKER_LOCK_FOLDER": str(at), "DHSCHED_WORKER_NAME": "mine", **environment},
        cwd=ROOT,
    )
    printed: list[str] = []

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            printed.append(line.decode())

    printed_all = asyncio.create_task(read())
    process.printed_all = printed_all  # type: ignore[attr-defined]  # So that it is not forgotten.
    return process, printed


@pytest.mark.release
async def test_a_script_joins_up_by_itself(at_home: Path) -> None:
    """As docs/guides/write-a-runtime.md shows it, beside `dhsched up` in another terminal."""
    up = await start("up", "--any-port", "--runtime", "null", "--workers", "1")
    mine: asyncio.subprocess.Process | None = None
    try:
        await until(lambda: any("live why" in line for line in up.printed), "a deployment", START_S)
        where = {line.split()[0]: line.split()[-1] for line in up.printed if " pid " in line}
        mine, printed = await script(at_home, RUNTIME, DHSCHED_URL=where["dispatch-1"])
        async with Client(where["dispatch-1"], where["infer-1"]) as client:

            async def workers() -> list[str]:
                return [each.worker async for each in client.workers(status="ready")]

            for _ in range(int(START_S / 0.1)):
                if any(each.startswith("mine#") for each in await workers()):
                    break
                assert mine.returncode is None, printed
                await asyncio.sleep(0.1)
            made = await client.create("anna", live_id="L", wait_s=30)
            if not made.worker.startswith("mine#"):
                target = next(each for each in await workers() if each.startswith("mine#"))
                await client.reassign("L", to=target)
            await client.push("L", "hello")
        await until(lambda: "spoken hello\n" in printed, "the words", START_S)
    finally:
        if mine is not None and mine.returncode is None:
            mine.kill()
            await mine.wait()
        await up.stop()


@pytest.mark.release
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "DHSCHED_WORKER_KEY"),
        ({"DHSCHED_WORKER_KEY": "dhk_0123456789ab_wrong"}, "no token for API key 0123456789ab"),
        ({"names": "gpu-*"}, "registers Workers named gpu-*"),
        ({"role": "app"}, "role worker"),
    ],
)
async def test_a_worker_that_is_not_let_in_says_why_and_ends(
    at_home: Path, given: Mapping[str, str], said: str
) -> None:
    async with empty_server("valkey") as server:
        async with await RedisStore.open(server.address) as store:
            ring = await open_ring(store.link, store.keys)
            await ring.create(role="admin")
            environment = dict(given)
            if "names" in given or "role" in given:
                text, _ = await ring.create(**{"role": "worker", **given})
                environment = {"DHSCHED_WORKER_KEY": text}
        replica = await run("dispatch", "--store", server.address.url())
        mine, printed = await script(at_home, RUNTIME, DHSCHED_URL=replica.url, **environment)
        try:
            assert await asyncio.wait_for(mine.wait(), START_S) == 1
            await until(lambda: printed and said in printed[-1], f"{said!r}; printed: {printed}", 5)
        finally:
            if mine.returncode is None:
                mine.kill()
            await replica.stop()
