"""`--exec`: a child per live, which acks, and of which nothing is left when its live or its Worker is gone."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dhsched.errors import ChildFailed
from dhsched.local.pids import alive
from dhsched.types import Generation
from dhsched.worker.exec import exec_runtime
from dhsched.worker.inbox import LiveInfo, SessionInbox
from dhsched.worker.session import Session
from tests.harness.acked import until_acked
from tests.harness.fleet import fleet, until
from tests.harness.nowhere import Nowhere
from tests.harness.processes import processes

COUNTS = """
import json, os, sys
for line in sys.stdin:
    said = json.loads(line)
    if "open" in said:
        count = int(said["open"]["state"] or 0)
        print(os.getpid(), file=open(sys.argv[1], "a"), flush=True)
    elif "input" in said:
        count += 1
        print(json.dumps({"ack": said["input"]["seq"], "state": str(count)}), flush=True)
    elif "close" in said:
        break
"""
STARTS_ANOTHER = """
sleep 1000 &
echo $$ $! >> "$1"
%s
"""
READS_ON = 'while read -r line; do case "$line" in *close*) exit 0;; esac; done'
"""The `sleep` inherits all that the script has: its output, its group, and the lock of the device."""


async def test_a_child_acks_and_dies_with_its_agent(tmp_path: Path) -> None:
    script, pids = tmp_path / "child.py", tmp_path / "pids"
    script.write_text(COUNTS)
    async with fleet(tmp_path) as f, processes(f) as p:
        worker = await p.worker("x", "--exec", f"{sys.executable} {script} {pids}")
        await p.workers_ready(1)
        await f.create("e")
        for text in ("one", "two", "three"):
            await f.push("e", text)
        await until_acked(f, "e", 3)
        store = f.controllers[0].context.store
        assert await store.link.call("HGET", store.keys.of("data", "default/e"), "saved") == b"3"
        [child] = noted(pids)
        assert alive(child)
        worker.kill()
        await worker.ended()
        await until(lambda: not alive(child), "the end of the child")


async def test_what_a_child_started_dies_with_its_live_and_with_its_agent(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"sh {shell_script(tmp_path, READS_ON)} {pids}"
    async with fleet(tmp_path) as f, processes(f) as p:
        worker = await p.worker("x", "--exec", command)
        await p.workers_ready(1)
        await f.create("ended")
        await until(lambda: len(noted(pids)) == 2, "a child and what it started")
        await f.post(f"{f.dispatch[0]}/v1/lives/ended/end")
        await until(lambda: not any(map(alive, noted(pids))), "the end of both with their live")
        pids.unlink()
        await f.create("killed")
        await until(lambda: len(noted(pids)) == 2, "another child and what it started")
        both = noted(pids)
        assert all(map(alive, both))
        worker.kill()
        await worker.ended()
        # Nobody is left to hold the device, so the next boot gets it.
        again = await p.worker("x", "--exec", command)
        await until(lambda: not any(map(alive, both)), "the end of both with the agent")
        await until(lambda: f.folder.joinpath("x.lock").read_text() == "x#2\n", "the next boot")
        assert again.returncode is None


async def test_a_child_that_ends_is_noticed_although_its_output_is_held_open(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    session = Session("t/a", Generation("w#1", 3), Nowhere())
    inbox = SessionInbox(session)
    inbox.made_of(LiveInfo())
    with exec_runtime(f"sh {shell_script(tmp_path, 'exit 7')} {pids}") as runtime:
        with pytest.raises(ChildFailed, match="status 7"):
            await asyncio.wait_for(runtime(session), 20)
        await until(lambda: not any(map(alive, noted(pids))), "the end of both")


def shell_script(folder: Path, rest: str) -> Path:
    script = folder / "child.sh"
    script.write_text(STARTS_ANOTHER % rest)
    return script


def noted(pids: Path) -> list[int]:
    return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
