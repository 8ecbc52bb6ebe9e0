"""A rolling upgrade under load: version N, which tests/upgrade/BASE names, and this one, side by side on one store.

N is built as a wheel from `git archive`, and runs with the dependencies of this environment. Applications of both
versions push all the time. Every service is replaced, one after the other, then every Worker; so Workers and
applications of N use services of this version, and both versions of every role share the store. Nothing may be lost or
consumed twice, and no application may see an error.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from dhsched.local.ports import free_port
from tests.harness.fleet import until
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


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the package of version N."""
    return built_package(BASE, tmp_path / "package")


class Upgrade:
    """A deployment whose processes are of either version."""

    def __init__(self, deployment: Processes, package: Path) -> None:
        self.deployment = deployment
        self.old = {"PYTHONPATH": str(package)}
        self.ports = {name: free_port() for name in ("d1", "d2", "i1", "i2")}
        self.workers: list[Process] = []
        self.loads: dict[str, Process] = {}

    async def service(self, name: str, *, old: bool) -> None:
        start = self.deployment.dispatch if name.startswith("d") else self.deployment.infer
        process = await start(name, port=self.ports[name], environment=self.old if old else {})
        await process.until_ready()

    async def worker(self, name: str, *, old: bool) -> None:
        process = await self.deployment.worker(name, environment=self.old if old else {})
        assert isinstance(process, Process)
        self.workers.append(process)

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
    async with running_server("valkey") as server, Processes(server.address.url(), folder=tmp_path) as deployment:
        upgrade = Upgrade(deployment, package)
        for name in upgrade.ports:
            await upgrade.service(name, old=True)
        for name in ("w1", "w2"):
            await upgrade.worker(name, old=True)
        await deployment.configure({"anna": ("gpu",)})
        for version in LIVES:
            await upgrade.load(version)
        for name in upgrade.ports:
            await upgrade.more_items()
            await upgrade.ended(name)
            await upgrade.service(name, old=False)
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
        print(f"{len(accepted)} items accepted, 0 lost, 0 twice, 0 errors")
