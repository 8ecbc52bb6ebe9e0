"""The systemd set on a machine that boots: units that systemd accepts, users and folders, the store's own settings, and
roles whose store is away.

systemd itself does not run here. Its own tools read the files, and the roles run as processes that are started again as
the units say.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from dhsched.cli.config import kinds
from dhsched.errors import StoreRefused
from dhsched.local.ports import free_port
from dhsched.store.link.address import parse_address
from dhsched.store.link.link import Link, LinkSettings
from dhsched.tasks import cancel
from tests.harness.fleet import until, until_so
from tests.harness.processes import Process
from tests.harness.servers import running_server, server_binary
from tests.harness.units import SYSTEMD, UNITS, role, section, service

STORE = service(SYSTEMD / "dhsched-store.service")
AWAY_S = 60.0


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"NOT TESTED with {name}: it is not on PATH (apt-get install systemd)")
    return found


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=role)
def test_a_unit_is_started_again_for_as_long_as_it_takes(unit: Path) -> None:
    """By default systemd gives up after five starts in ten seconds, and the unit stays failed."""
    assert section(unit, "Unit")["StartLimitIntervalSec"] == "0"
    assert service(unit)["Restart"] == "always"


def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    for unit in UNITS:
        # The commands are not installed here; what else a unit says stays as it is.
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name.replace("@", "@gpu-0")).write_text(text)
    assert run(analyze, "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))) == ""


def test_a_worker_has_longer_than_its_drain() -> None:
    worker = service(SYSTEMD / "dhsched-worker@.service")
    drain_s = float(worker["ExecStart"].partition("--drain-s ")[2].split()[0])
    assert float(worker["TimeoutStopSec"]) > drain_s


def test_users_and_folders(tmp_path: Path) -> None:
    sysusers, tmpfiles = tool("systemd-sysusers"), tool("systemd-tmpfiles")
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can give folders to the users of the units")
    for kind in ("sysusers", "tmpfiles"):
        folder = tmp_path / "usr" / "lib" / f"{kind}.d"
        folder.mkdir(parents=True)
        shutil.copy(SYSTEMD / f"dhsched.{kind}", folder / "dhsched.conf")
    (tmp_path / "etc").mkdir()
    run(sysusers, f"--root={tmp_path}")
    users = dict(re.findall(r"^([\w-]+):x:(\d+):", (tmp_path / "etc" / "passwd").read_text(), re.MULTILINE))
    groups = dict(re.findall(r"^([\w-]+):x:(\d+):", (tmp_path / "etc" / "group").read_text(), re.MULTILINE))
    assert {service(unit)["User"] for unit in UNITS} == {"dhsched", "dhsched-store"} <= users.keys()
    members = (tmp_path / "etc" / "group").read_text()
    assert re.search(r"^dhsched-tls:.*:dhsched,dhsched-store$", members, re.MULTILINE)

    config = tmp_path / "etc" / "dhsched"
    config.mkdir()
    for name in ("store", "tls.key", "worker.key-file", "ca.pem"):
        (config / name).touch(mode=0o666)
    run(tmpfiles, "--create", f"--root={tmp_path}")

    def has(path: str) -> tuple[int, int, int]:
        found = (tmp_path / path).stat()
        return found.st_mode & 0o777, found.st_uid, found.st_gid

    tls, dhsched = int(groups["dhsched-tls"]), int(users["dhsched"])
    assert has("etc/dhsched") == (0o750, 0, tls)
    assert has("etc/dhsched/tls.key") == (0o640, 0, tls)
    assert has("etc/dhsched/store") == has("etc/dhsched/worker.key-file") == (0o600, 0, 0)
    assert has("etc/dhsched/ca.pem") == (0o644, 0, 0)
    assert has("var/lib/dhsched")[:2] == (0o700, dhsched)
    assert has("var/lib/dhsched-store")[:2] == (0o700, int(users["dhsched-store"]))


def test_every_file_that_a_unit_reads_has_its_rights_in_tmpfiles() -> None:
    rules = re.findall(r"^z (\S+)", (SYSTEMD / "dhsched.tmpfiles").read_text(), re.MULTILINE)
    secret = {service(unit)["LoadCredential"].partition(":")[2] for unit in UNITS}
    named = {*re.findall(r"^tls-\S+ (/\S+)", (SYSTEMD / "store.conf").read_text(), re.MULTILINE)}
    assert len(secret) == 4 and len(named) == 3
    lacking = [path for path in sorted(secret | named) if not any(Path(path).match(rule) for rule in rules)]
    assert lacking == []


async def test_the_settings_of_the_store_are_the_ones_that_dhsched_wants(certificate: Path, tmp_path: Path) -> None:
    """The file as it is, but for the port and the folders, on a real server with TLS and a password."""
    port, text = free_port(), (SYSTEMD / "store.conf").read_text()
    for old, new in {
        "/var/lib/dhsched-store": str(tmp_path),
        "/etc/dhsched/tls.pem": str(certificate / "cert.pem"),
        "/etc/dhsched/tls.key": str(certificate / "key.pem"),
        "/etc/dhsched/ca.pem": str(certificate / "cert.pem"),
        "tls-port 6379": f"tls-port {port}",
    }.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "store.conf").write_text(text)
    (tmp_path / "auth.conf").write_text("requirepass secret\n")
    options = [option.replace("%d", str(tmp_path)) for option in STORE["ExecStart"].split()[2:]]
    server = await Process.spawn("store", str(server_binary("redis")), str(tmp_path / "store.conf"), *options)
    try:
        url = f"rediss://:secret@127.0.0.1:{port}?ca={certificate / 'cert.pem'}"
        async with await Link.open(parse_address(url), {}, LinkSettings(connect_s=AWAY_S)) as link:
            found = await link.call("CONFIG", "GET", "*")
        wanted = {b"appendonly": b"yes", b"appendfsync": b"everysec", b"maxmemory-policy": b"noeviction"}
        assert {name: found[name] for name in wanted} == wanted
        assert found[b"maxmemory"] == str(4 * 2**30).encode() and found[b"port"] == b"0"
        with pytest.raises(StoreRefused, match="NOAUTH"):
            await Link.open(parse_address(url.replace(":secret@", "")), {})
    finally:
        server.kill()
        await server.stop()


# -- a store that is away


class Supervised:
    """One role, started again a second after it ends, as its unit does."""

    def __init__(self, role: str, *options: str) -> None:
        self.ends: list[tuple[int, str]] = []
        self._words = ("run", role, *options)
        self._process: ErrorsToo | None = None
        self._task = asyncio.create_task(self._run(), name=role)

    async def _run(self) -> None:
        while True:
            self._process = await ErrorsToo.start(self._words[1], *self._words)
            self.ends.append((await self._process.ended(3600), "".join(self._process.printed)))
            await asyncio.sleep(1)

    async def stop(self) -> None:
        await cancel(self._task)
        if self._process is not None:
            await self._process.stop()


class ErrorsToo(Process):
    errors_too = True


@pytest.mark.parametrize(
    "away_s",
    [
        pytest.param(0, marks=pytest.mark.release),
        pytest.param(300, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
async def test_roles_that_boot_before_their_store_are_ready_after_it(away_s: int, tmp_path: Path) -> None:
    """Each either waits or ends with status 1 and one sentence that names the store; so its unit is started again."""
    port, ports = free_port(), {name: free_port() for name in kinds()}
    at = {name: f"http://127.0.0.1:{number}" for name, number in ports.items()}
    store = ("--store", f"redis://127.0.0.1:{port}", "--access", "open")
    options = {
        "dispatch": (*store, "--port", str(ports["dispatch"])),
        "infer": (*store, "--port", str(ports["infer"])),
        "worker": ("--runtime", "null", "--pool", "gpu", "--capacity", "1", "--name", "w", "--locks", str(tmp_path)),
        "room": ("--port", str(ports["room"]), "--metrics-port", "0", "--access", "open", "--infer", at["infer"]),
    }
    options["worker"] += ("--metrics-port", str(ports["worker"]), "--dispatch", at["dispatch"])
    options["room"] += ("--dispatch", at["dispatch"])
    roles = {name: Supervised(name, *words) for name, words in options.items()}

    async def is_ready(name: str) -> bool:
        try:
            async with aiohttp.ClientSession() as http, http.get(f"{at[name]}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    try:
        await asyncio.sleep(away_s)
        await until(lambda: all(len(roles[name].ends) > 1 for name in ("dispatch", "infer")), "two ends each", AWAY_S)
        for name in ("dispatch", "infer"):
            for status, said in roles[name].ends:
                assert status == 1 and said.count("\n") == 1 and f"redis://127.0.0.1:{port}" in said, said
        assert not roles["worker"].ends and not roles["room"].ends, "they wait for Dispatch"
        assert not await is_ready("worker") and not await is_ready("room")
        async with running_server("valkey", port=port):
            for name in options:
                await until_so(partial(is_ready, name), bool, f"{name} is ready", AWAY_S)
            for each in roles.values():
                await each.stop()
    finally:
        for each in roles.values():
            await each.stop()
