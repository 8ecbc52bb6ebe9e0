"""The five minutes of docs/guides/livekit.md, followed as they are printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dhsched.local.process import Process
from dhsched.local.waiting import until
from tests.harness.guides import Shell, shell_blocks
from tests.harness.livekit_client import WAIT_S, Server
from tests.harness.livekit_rig import rig
from tests.harness.tree import ROOT

PAGE = "docs/guides/livekit.md"


class Heard(Process):
    errors_too = True


def programs() -> list[str]:
    text = (ROOT / PAGE).read_text().partition("\n## Five minutes\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


async def test_the_five_minutes(livekit: Server, tmp_path: Path) -> None:
    """Only the deployment is another one than `dhsched up`, on ports of its own."""
    face, agent = programs()
    (tmp_path / "face.py").write_text(face)
    livekit.room = "demo"
    (tmp_path / "agent.py").write_text(agent)
    running: list[Process] = []
    async with livekit.watching() as viewer, rig(livekit, workers=0) as made:
        dispatch = ",".join(await made.dispatch_urls())
        shell = Shell(tmp_path, {}, {})
        shell.export("DHSCHED_URL", dispatch)
        [block] = shell_blocks(PAGE, "Five minutes")
        await shell.run(block)
        where = {"DHSCHED_URL": dispatch, "DHSCHED_WORKER_LOCK_FOLDER": str(tmp_path), **livekit.environment}

        async def start(name: str, program: str) -> Process:
            names = {**where, "DHSCHED_WORKER_NAME": name}
            running.append(await Heard.spawn(name, sys.executable, str(tmp_path / program), environment=names))
            return running[-1]

        try:
            workers = {name: await start(name, "face.py") for name in ("a", "b")}
            await made.until_workers(2)
            said = (await start("agent", "agent.py")).printed
            await until(lambda: any("lisa~1 is in the room" in line for line in said), "the first face", WAIT_S)
            await viewer.sees("lisa~1")
            [live_id] = re.findall(r"as live (\S+)", "".join(said))
            async with made.client() as client:
                worker = (await client.get(live_id)).worker
            assert worker is not None
            workers[worker[0]].kill()
            await viewer.sees("lisa~2")
        finally:
            for process in running:
                print(process.name, *process.printed, sep="\n")
                process.kill()
                await process.stop()
