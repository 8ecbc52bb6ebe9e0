"""The shell blocks of a page, run as they are printed, each with what the blocks before it have exported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from dhsched.local.waiting import until
from tests.harness.processes import start
from tests.harness.tree import ROOT

BLOCK_S = 60.0
UP_S = 240.0


def shell_blocks(page: str, heading: str) -> list[str]:
    """Return the shell blocks of one section of a page."""
    text = (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert found, f"{page} has no section {heading!r} with commands"
    return found


class Shell:
    """One machine's shell: `replaced` texts of a command are written otherwise, `stubs` are commands of the test."""

    def __init__(self, folder: Path, replaced: Mapping[str, str], stubs: Mapping[str, str]) -> None:
        self.exported = folder / "exported"
        self._replaced = replaced
        tools = folder / "tools"
        tools.mkdir(parents=True)
        for name, script in {**stubs, "dhsched": dhsched_script()}.items():
            (tools / name).write_text(f"#!/bin/bash\n{script}\n")
            (tools / name).chmod(0o755)
        self.exported.write_text(f"export PATH={tools}:{os.environ['PATH']} HOME={folder} XDG_STATE_HOME={folder}\n")

    def export(self, name: str, value: str) -> None:
        self.exported.write_text(self.exported.read_text() + f"export {name}={shlex.quote(value)}\n")

    async def run(self, block: str) -> str:
        """Run a block as a script that ends with its first failing command. Return what the block printed."""
        for old, new in self._replaced.items():
            block = block.replace(old, new)
        ended = f"export -p > {self.exported}"
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"set -euo pipefail\nsource {self.exported}\n{block}\n{ended}"),
            env={name: value for name, value in os.environ.items() if not name.startswith("DHSCHED")},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
        )
        try:
            async with asyncio.timeout(BLOCK_S):
                said = (await process.communicate())[0].decode()
        except TimeoutError:
            process.kill()
            raise AssertionError(f"not done after {BLOCK_S:g} s:\n{block}") from None
        assert process.returncode == 0, f"{block}\n{said}"
        return said


def dhsched_script() -> str:
    return f'exec "{sys.executable}" -m dhsched.cli "$@"'


@asynccontextmanager
async def up(shell: Shell, block: str) -> AsyncIterator[None]:
    """Run the block `dhsched up ...` of a page, on any ports, for the shell's other blocks."""
    command, *options = shlex.split(block)
    assert (command, options.pop(0)) == ("dhsched", "up"), block
    shell.export("XDG_STATE_HOME", os.environ["XDG_STATE_HOME"])
    process = await start("up", "--any-port", *options)
    try:
        await until(lambda: any("live why" in line for line in process.printed), "a deployment", UP_S)
        where = {line.split()[0]: line.split()[-1] for line in process.printed if " pid " in line}
        shell.export("DHSCHED_URL", where["dispatch-1"])
        yield
    finally:
        await process.stop()


def end_all(folder: Path) -> None:
    """End what a page has started in this folder, by the files that have the ids."""
    for each in folder.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(each.read_text()), signal.SIGKILL)
