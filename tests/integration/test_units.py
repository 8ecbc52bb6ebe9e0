"""The systemd units: they start what exists, hand secrets over as credentials, and let the process do little else.

systemd itself does not run here. What can be held against it without: `systemd-analyze`, which reads a unit offline;
and memory that is never writable and executable, which the kernel can demand of a process by itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from dhsched.cli.config import kinds
from dhsched.settings import environment_key, settings_of
from tests.harness.processes import START_S
from tests.harness.servers import empty_server
from tests.harness.units import UNITS, role, service
from tests.harness.verbs import every_verb

EXPOSED_MAX = 2.0  # Of 10, by systemd's own count.
DEMANDED = {
    *("NoNewPrivileges", "CapabilityBoundingSet", "ProtectSystem", "ProtectHome", "PrivateTmp", "RestrictNamespaces"),
    *("RestrictAddressFamilies", "SystemCallFilter", "ProtectKernelModules", "RestrictSUIDSGID", "UMask"),
}
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1


ROLE_UNITS = [unit for unit in UNITS if role(unit) != "store"]


def test_every_role_has_a_unit_and_so_has_the_store() -> None:
    assert {role(unit) for unit in UNITS} == {*kinds(), "store"}


@pytest.mark.parametrize("unit", ROLE_UNITS, ids=role)
def test_a_unit_starts_its_role_with_options_that_exist(unit: Path) -> None:
    _, run, started, *options = shlex.split(service(unit)["ExecStart"])
    assert (run, started) == ("run", role(unit))
    command = dict(every_verb())["run", started]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {option for option in options if option.startswith("--")} <= known


@pytest.mark.parametrize("unit", ROLE_UNITS, ids=role)
def test_a_unit_hands_its_secret_over_as_a_credential(unit: Path) -> None:
    found, kind = service(unit), kinds()[role(unit)]
    secrets = {environment_key(kind, each.name) for each in settings_of(kind) if each.metadata.get("secret")}
    assert found["LoadCredential"].partition(":")[0] in secrets
    assert not any(secret in found.get("Environment", "") for secret in secrets)


@pytest.mark.parametrize("unit", UNITS, ids=role)
def test_a_unit_is_hardened(unit: Path) -> None:
    assert not DEMANDED - service(unit).keys()
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: how much the units expose is not counted")
    counted = subprocess.run(
        [analyze, "security", "--offline=true", f"--threshold={EXPOSED_MAX * 10:.0f}", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert counted.returncode == 0, counted.stdout[-2_000:] + counted.stderr


ALLOCATING_SAFELY = [each for each in ROLE_UNITS if "MemoryDenyWriteExecute" in service(each)]


@pytest.mark.parametrize(
    "unit",
    [*ALLOCATING_SAFELY[:1], *(pytest.param(each, marks=pytest.mark.release) for each in ALLOCATING_SAFELY[1:])],
    ids=[role(each) for each in ALLOCATING_SAFELY],
)
async def test_a_role_runs_without_memory_that_is_writable_and_executable(unit: Path, tmp_path: Path) -> None:
    """With its secret in a credential, as the unit hands it over."""
    libc = ctypes.CDLL(None)
    code = (
        f"import ctypes; assert ctypes.CDLL(None).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0) == 0, "
        "'no such demand'; from dhsched.cli import main; main()"
    )
    if libc.prctl(PR_SET_MDWE + 1, 0, 0, 0, 0) < 0:  # PR_GET_MDWE
        pytest.skip("this kernel cannot be asked for it (Linux 6.3 can)")
    async with empty_server("valkey") as server:
        (tmp_path / "DHSCHED_STORE").write_text(server.address.url())
        environment = {**os.environ, "CREDENTIALS_DIRECTORY": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, "run", role(unit), "--port", "0"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={name: value for name, value in environment.items() if name != "DHSCHED_STORE"},
        )
        try:
            async with asyncio.timeout(START_S):
                assert started.stdout is not None
                printed = b""
                while b"http://127.0.0.1:" not in printed:
                    line = await started.stdout.readline()
                    assert line, printed.decode()
                    printed += line
                url = "http://127.0.0.1:" + printed.decode().split("http://127.0.0.1:")[1].split()[0].strip("'\"/,")
                async with aiohttp.ClientSession() as http, http.get(f"{url}/healthz") as answer:
                    assert answer.status == 200
        finally:
            if started.returncode is None:
                started.kill()
            await started.wait()
