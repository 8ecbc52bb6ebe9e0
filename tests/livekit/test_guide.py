"""The five minutes of docs/guides/livekit.md, followed as they are printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.harness import guides
from tests.harness.guides import Shell, end_all, shell_blocks, up
from tests.harness.livekit_client import Server
from tests.harness.tree import document

PAGE = "docs/guides/livekit.md"


def programs() -> list[str]:
    text = document(PAGE).partition("\n## Five minutes\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


async def test_the_five_minutes(livekit: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the ports are others, and the server, of which the page says that it is yours."""
    monkeypatch.setattr(guides, "BLOCK_S", 120.0)  # Importing LiveKit's agents takes a busy machine long.
    up_block, workers, agent, kill, end = shell_blocks(PAGE, "Five minutes")
    folder = tmp_path / "face"
    folder.mkdir()
    for name, program in zip(("face.py", "agent.py"), programs(), strict=True):
        (folder / name).write_text(program)
    livekit.room = "demo"
    shell = Shell(tmp_path, {}, {"python": f'exec "{sys.executable}" "$@"'})
    for name, value in livekit.environment.items():
        shell.export(name, value)
    here = f"cd {folder}\n"
    try:
        async with livekit.watching() as viewer, up(shell, up_block):
            await shell.run(here + workers)
            assert "lisa~1 is in the room" in await shell.run(here + agent)
            await viewer.sees("lisa~1")
            await shell.run(here + kill)
            await viewer.sees("lisa~2")
            await shell.run(here + end)
    finally:
        for each in folder.glob("*.log"):
            print(each.name, each.read_text())
        end_all(folder)
