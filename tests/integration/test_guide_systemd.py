"""docs/guides/deploy-systemd.md, followed literally: three machines are three addresses of this one, each with its own
folders, and a stand-in for systemd starts what the units say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import SystemRandom

import aiohttp
import pytest

from dhsched.client.credentials import client_tls
from tests.harness.fleet import until, until_so
from tests.harness.guides import Shell, shell_blocks
from tests.harness.processes import Process
from tests.harness.servers import server_binary

PAGE = "docs/guides/deploy-systemd.md"
MACHINES = {"control-1": "10.0.0.11", "control-2": "10.0.0.12", "gpu-1": "10.0.0.13"}
FOLDERS = ("/etc/dhsched", "/etc/systemd/system", "/usr/lib/sysusers.d", "/usr/lib/tmpfiles.d", "/var/lib")
READY_S = 60.0


class Machine:
    """One machine of the page: its folders below `root`, its shell, and the units that it has started."""

    def __init__(self, name: str, folder: Path, addresses: Mapping[str, str]) -> None:
        self.root = folder / name
        for each in FOLDERS:
            (self.root / each[1:]).mkdir(parents=True)
        self.etc = self.root / "etc" / "dhsched"
        self.units: dict[str, Process] = {}
        self._replaced = {
            **addresses,
            **{each: f"{self.root}{each}" for each in FOLDERS},
            "/opt/dhsched/bin/pip install": ": pip install",
            "python3 -m venv": ": venv",
            "/opt/dhsched/bin/dhsched": "dhsched",
            "authority": str(folder / "authority"),
        }
        tools = {name: f'exec {path} --root={self.root} "$@"' for name, path in own_tools().items()}
        stubs = {**tools, "systemctl": f'echo "$@" >> {self.root}/asked'}
        self.shell = Shell(folder / f"{name}-shell", self._replaced, stubs)

    async def run(self, block: str) -> str:
        """Run a block, then start the units that it has enabled."""
        said = await self.shell.run(block)
        asked = self.root / "asked"
        for line in asked.read_text().splitlines() if asked.exists() else ():
            enable, now, *units = line.split()
            assert (enable, now) == ("enable", "--now"), line
            for unit in units:
                self.units[unit] = await self._start(unit)
        asked.unlink(missing_ok=True)
        return said

    async def _start(self, unit: str) -> Process:
        name, at, instance = unit.partition("@")
        file = self.root / "etc" / "systemd" / "system" / f"{name}{at}.service"
        lines = re.findall(r"^(\w+)=(.*)$", file.read_text(), re.MULTILINE)
        credentials = self.root / "credentials" / unit
        credentials.mkdir(parents=True)
        lines = [
            (key, self._placed(value.replace("%i", instance).replace("%d", str(credentials)))) for key, value in lines
        ]
        environment = {"CREDENTIALS_DIRECTORY": str(credentials), "XDG_STATE_HOME": str(self.root)}
        for key, value in lines:
            if key == "LoadCredential":
                credential, _, source = value.partition(":")
                shutil.copy(source, credentials / credential)
            elif key == "EnvironmentFile":
                environment |= variables(value)
            elif key == "Environment":
                environment |= dict([value.split("=", 1)])
        command = next(value for key, value in lines if key == "ExecStart")
        command = re.sub(r"\$\{(\w+)\}", lambda found: environment[found[1]], command)
        return await spawned(unit, *shlex.split(command), environment=environment)

    def _placed(self, text: str) -> str:
        """Return the text with the folders of this machine."""
        for folder in FOLDERS:
            text = re.sub(rf"(?<!\w){folder}", f"{self.root}{folder}", text)
        return text

    def own_files(self, address: str) -> None:
        """Let the store's settings name this machine's folders, and listen at its address alone."""
        conf = self.etc / "store.conf"
        conf.write_text(self._placed(conf.read_text()).replace("bind * -::*", f"bind {address}"))

    async def stop(self) -> None:
        for unit in reversed([*self.units.values()]):
            unit.kill()
            await unit.stop()


def own_tools() -> dict[str, str]:
    """Return the tools of systemd that need no systemd that runs."""
    found = {name: shutil.which(name) or "" for name in ("systemd-sysusers", "systemd-tmpfiles")}
    if not all(found.values()) or os.geteuid() != 0:
        pytest.skip("NOT TESTED: the guide needs systemd-sysusers, systemd-tmpfiles and root")
    return found


def variables(file: str) -> dict[str, str]:
    path = Path(file.removeprefix("-"))
    if file.startswith("-") and not path.exists():
        return {}
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


async def spawned(unit: str, binary: str, *words: str, environment: Mapping[str, str]) -> Process:
    if binary == "/usr/bin/valkey-server":
        return await Process.spawn(unit, str(server_binary("redis")), *words)
    assert binary == "/opt/dhsched/bin/dhsched"
    child = (sys.executable, "-m", "dhsched.local.child", "dhsched.cli")
    return await Process.spawn(unit, *child, *words, environment=environment)


async def readiness(url: str, ca: Path) -> int:
    try:
        async with aiohttp.ClientSession() as http, http.get(f"{url}/readyz", ssl=client_tls(str(ca))) as answer:
            return answer.status
    except aiohttp.ClientError:
        return 0


@pytest.mark.release
@pytest.mark.timeout(300)
async def test_three_machines_by_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: the guide's certificates need openssl, which is not on PATH")
    for name in ("DHSCHED_STORE", "DHSCHED_URL", "DHSCHED_KEY", "DHSCHED_INFER"):
        monkeypatch.delenv(name, raising=False)
    chance = SystemRandom()
    net = f"127.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}"  # The page's ports are free at new addresses.
    addresses = {address: address.replace("10.0.0", net) for address in MACHINES.values()}
    machines = {name: Machine(name, tmp_path, addresses) for name in MACHINES}
    first, second, gpu = machines.values()
    install, authority = shell_blocks(PAGE, "Every machine")
    try:
        for machine in machines.values():
            await machine.run(install)
        await first.run(authority)
        for name, machine in machines.items():
            shutil.copy(tmp_path / "authority" / "ca.pem", machine.etc / "ca.pem")
            for kind in ("pem", "key"):
                shutil.copy(tmp_path / "authority" / f"{addresses[MACHINES[name]]}.{kind}", machine.etc / f"tls.{kind}")

        store, roles, admin = shell_blocks(PAGE, "control-1")
        *prepares, enables = store.strip().splitlines()
        await first.run("\n".join(prepares))
        first.own_files(addresses["10.0.0.11"])
        await first.run(enables)
        await first.run(roles)
        shutil.copy(first.etc / "store", second.etc / "store")
        text = (second.etc / "store").read_text().replace(str(first.root), str(second.root))
        (second.etc / "store").write_text(text)  # Both have the authority at the same path, where they are machines.
        [control_2] = shell_blocks(PAGE, "control-2")
        await second.run(control_2)
        for address in (addresses["10.0.0.11"], addresses["10.0.0.12"]):
            for port in (7400, 7401):
                url = f"https://{address}:{port}"
                await until_so(partial(readiness, url, first.etc / "ca.pem"), (200).__eq__, f"{url} is ready", READY_S)

        token = next(word for word in (await first.run(admin)).split() if word.startswith("dhj_"))
        gpu.shell.export("TOKEN", token)
        [joins] = shell_blocks(PAGE, "gpu-1")
        await gpu.run(joins)
        worker = gpu.units["dhsched-worker@gpu-0"]
        await until_so(
            partial(first.run, "dhsched worker ls"), lambda said: "gpu-1" in said, "the Worker is registered", READY_S
        )
        [works] = shell_blocks(PAGE, "See that it works")
        assert "gpu-1" in await first.run(works)
        await until(lambda: worker.consumed("hello"), "the words", READY_S)
        assert [text for _, _, text in worker.consumed("hello")] == ["Hello from three machines."]
    finally:
        for machine in machines.values():
            await machine.stop()
