"""A rolling upgrade under load: version N, which tests/upgrade/BASE names, and this one, side by side on one store.

N is built as a wheel from `git archive`, and runs with the dependencies of this environment. Applications of both
versions push all the time. Every service is replaced, one after the other, then every Worker; so Workers and
applications of N use services of this version, and both versions of every role share the store. A viewer types in a
room, which is of N until every service is of this version, and a Worker of N publishes to it. Nothing may be lost or
consumed twice, and no application or viewer may see an error.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dhsched.local.ports import free_port
from tests.harness.avatar_extra import require_avatar
from tests.harness.fleet import until, until_so
from tests.harness.processes import Process, Processes
from tests.harness.servers import running_server
from tests.harness.tree import ROOT
from tests.harness.versions import built_package

BASE = (ROOT / "tests" / "upgrade" / "BASE").read_text().strip()
LOAD = str(ROOT / "tests" / "upgrade" / "load.py")
STEP_S = 90.0
ITEMS = 10  # Items of each application that are accepted between two steps of the upgrade, at least.
LIVES = {"old": ("old-1", "old-2"), "new": ("new-1", "new-2")}
"""Lives by the version of the application that pushes to them."""
SHOWN = "shown"  # The live in the room.
TESTCARD = "tests.browser.testcard:show"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the package of version N."""
    return built_package(BASE, tmp_path / "package")


class Upgrade:
    """A deployment whose processes are of either version."""

    def __init__(self, deployment: Processes, package: Path) -> None:
        self.deployment = deployment
        self.old = {"PYTHONPATH": str(package)}
        self.ports = {name: free_port() for name in ("d1", "d2", "i1", "i2", "r1")}
        self.room = f"http://127.0.0.1:{self.ports['r1']}"
        self.said = 0
        self.workers: list[Process] = []
        self.loads: dict[str, Process] = {}

    async def service(self, name: str, *, old: bool) -> None:
        how: dict[str, Any] = {"port": self.ports[name], "environment": self.old if old else {}}
        match name[0]:
            case "d":
                process = await self.deployment.dispatch(name, **how)
            case "i":
                process = await self.deployment.infer(name, "--room", self.room, **how)
            case _:
                process = await self.deployment.room(name, **how)
        await process.until_ready()

    async def worker(self, name: str, *, old: bool, **how: str) -> None:
        process = await self.deployment.worker(name, environment=self.old if old else {}, **how)
        assert isinstance(process, Process)
        self.workers.append(process)

    async def viewer_types(self) -> None:
        """Type as a viewer of the room: the live's owner gets it and acks it, and is the one on air."""
        async with aiohttp.ClientSession(f"{self.room}/v1/lives/{SHOWN}/") as http:

            async def state() -> Any:
                async with http.get("state") as response:
                    return await response.json()

            async with http.post("text", json={"text": "."}) as response:
                assert response.status == 200, await response.text()
            self.said += 1
            await until_so(
                state,
                lambda now: now["owner"] is not None and not now["owner"]["pending"],
                "the ack of what was typed",
                STEP_S,
            )
            await until_so(state, lambda now: now["on_air"] == now["owner"]["epoch"] > 0, "the owner on air", STEP_S)

    async def load(self, version: str) -> None:
        """Start an application that has seen every Dispatch replica."""
        urls = ",".join(f"http://127.0.0.1:{self.ports[name]}" for name in ("d1", "d2"))
        environment = self.old if version == "old" else {}
        words = (sys.executable, LOAD, urls, ",".join(LIVES[version]))
        self.loads[version] = await Process.spawn(version, *words, environment=environment)

    async def more_items(self) -> None:
        """Wait until both applications have pushed more, so that a step of the upgrade happens under load."""
        before = {version: len(load.printed) for version, load in self.loads.items()}
        for version, load in self.loads.items():
            await until(
                lambda load=load, version=version: (  # type: ignore[misc]
                    load.returncode is not None or len(load.printed) >= before[version] + ITEMS
                ),
                f"items of {version}",
                STEP_S,
            )
            assert load.returncode is None, f"the application of {version} has ended: {load.printed[-3:]}"

    async def ended(self, name: str) -> None:
        """Ask a process to stop, as an operator does, and wait until it has."""
        [process] = [each for each in self.deployment.processes if each.name == name]
        process.signal(signal.SIGTERM)
        assert await process.ended(STEP_S) == 0, name
        await self.deployment.remove(name)

    def consumed(self) -> Counter[str]:
        lives = [live for version in LIVES.values() for live in version]
        return Counter(text for worker in self.workers for live in lives for _, _, text in worker.consumed(live))


@pytest.mark.release
@pytest.mark.timeout(600)
async def test_a_rolling_upgrade_loses_nothing(package: Path, tmp_path: Path) -> None:
    require_avatar()
    async with running_server("valkey") as server, Processes(server.address.url(), folder=tmp_path) as deployment:
        upgrade = Upgrade(deployment, package)
        for name in upgrade.ports:
            await upgrade.service(name, old=True)
        for name in ("w1", "w2"):
            await upgrade.worker(name, old=True)
        await upgrade.worker("c1", old=True, pool="cam", runtime=TESTCARD)
        await deployment.configure({"anna": ("gpu",), "card": ("cam",)})
        async with deployment.client() as client:
            await client.create("card", live_id=SHOWN, wait_s=30)
        await upgrade.viewer_types()
        for version in LIVES:
            await upgrade.load(version)
        for name in upgrade.ports:
            await upgrade.more_items()
            await upgrade.ended(name)
            await upgrade.service(name, old=False)
            await upgrade.viewer_types()
        await upgrade.worker("c2", old=False, pool="cam", runtime=TESTCARD)
        await upgrade.ended("c1")
        await upgrade.viewer_types()
        for name in ("w1", "w2"):
            await upgrade.more_items()
            await upgrade.ended(name)
            await upgrade.worker(name, old=False)
        await upgrade.more_items()
        accepted: list[str] = []
        for version, load in upgrade.loads.items():
            load.signal(signal.SIGTERM)
            assert await load.ended(STEP_S) == 0, version
            *pushed, done = (line.strip() for line in load.printed)
            assert done == "done", version
            accepted += pushed
        await until(lambda: not {*accepted} - {*upgrade.consumed()}, "every accepted item", STEP_S)
        twice = {text: count for text, count in upgrade.consumed().items() if count > 1}
        assert twice == {}, "consumed more than once"
        async with deployment.client() as client:
            shown = await client.get(SHOWN)
        assert (shown.acked, sum(shown.dropped.values()), shown.epoch) == (upgrade.said, 0, 2)
        print(f"{len(accepted) + upgrade.said} items accepted, 0 lost, 0 twice, 0 errors")
