"""The commands of README.md and docs/start/quickstart.md are run as they are printed, on other ports."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dhsched.local.ports import free_port
from tests.harness.fleet import until
from tests.harness.processes import ROOT, Process, start

COMMAND_S = 60.0


def blocks(document: str, heading: str = "") -> list[str]:
    """The shell blocks of a document, or of one of its sections."""
    text = (ROOT / document).read_text()
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        assert text, f"{document} has no section {heading!r}"
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def commands(block: str) -> list[str]:
    """One command per line; continued lines are joined, comments dropped."""
    joined = block.replace("\\\n", " ")
    return [line.partition(" #")[0].strip() for line in joined.splitlines() if line.strip()]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """An environment in which `dhsched` is this tree's, and keys are written down in a place of the test."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dhsched").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dhsched.local.child dhsched.cli "$@"\n')
    (tools / "dhsched").chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "COLUMNS": "160"}


async def run(command: str, env: Mapping[str, str], folder: Path = ROOT) -> str:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        env=dict(env),
        stdin=asyncio.subprocess.PIPE,  # Held open: a child that sees it close takes it for the end of its parent.
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    assert process.stdout is not None
    try:
        said = (await asyncio.wait_for(process.stdout.read(), COMMAND_S)).decode()
    except TimeoutError:
        process.kill()
        raise AssertionError(f"{command}: not done after {COMMAND_S:g} s") from None
    assert await process.wait() == 0, f"{command}: {said}"
    return said


@pytest.mark.release
async def test_the_tour_of_the_readme(shell: Mapping[str, str]) -> None:
    up = await start("up", "--any-port", "--runtime", "echo")
    try:
        await until(lambda: any("live why" in line for line in up.printed), "a deployment", 60)
        where = {line.split()[0]: line.split() for line in up.printed if " pid " in line}
        env = {**shell, "DHSCHED_URL": where["dispatch-1"][-1], "DHSCHED_INFER": where["infer-1"][-1]}
        before, after = (
            [line for line in commands(block) if line.startswith("dhsched")]
            for block in blocks("README.md", "One minute")
        )
        said = [await run(command, env) for command in before]
        assert "worker-3" in said[-1] and "spare" in said[-1]
        owner = json.loads(await run("dhsched live get evening --json", env))["worker"]
        os.kill(int(where[owner.partition("#")[0]][2]), signal.SIGKILL)
        said = [await run(after[0], env)]
        await until(lambda: "Did you miss me?" in [text for _, _, text in up.consumed("evening")], "the words")
        said.append(await run(after[1], env))
        header = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("EPOCH"))
        assert said[1].splitlines()[0].split() == header.split()
        assert "recover" in said[1] and "lost" in said[1]
        for more in ("dhsched why evening", "dhsched events", "dhsched top --once", "dhsched recoveries"):
            assert await run(more, env)
        moved = json.loads(await run("dhsched live get evening --json", env))
        await run(f"dhsched worker drain {moved['worker']} --wait", env)
        assert json.loads(await run("dhsched live get evening --json", env))["epoch"] > moved["epoch"]
    finally:
        await up.stop()


@pytest.mark.release
async def test_the_quickstart(shell: Mapping[str, str], tmp_path: Path) -> None:
    """Processes are started in its order; what waits for one of them is started before it, as on the page."""
    if shutil.which("curl") is None:
        pytest.skip("NOT TESTED: the quickstart's commands need curl, which is not on PATH")
    ports = {"7400": str(free_port()), "7410": str(free_port()), "7401": str(free_port())}
    env = {**shell, "DHSCHED_INFER": f"http://127.0.0.1:{ports['7401']}", "DHSCHED_LOG_LEVEL": "warning"}
    env["DHSCHED_URL"] = f"http://127.0.0.1:{ports['7400']}"
    started: list[Process] = []
    waiting: list[asyncio.Task[str]] = []
    try:
        for block in blocks("docs/start/quickstart.md"):
            for line in commands(block):
                command = re.sub("|".join(ports), lambda found: ports[found[0]], line)
                if command.startswith("export DHSCHED_STORE"):
                    env["DHSCHED_STORE"] = os.environ["DHSCHED_STORE"] = started[0].printed[0].strip()
                elif command.startswith("export "):
                    name, _, value = command.removeprefix("export ").partition("=")
                    env[name] = value
                elif command.startswith("dhsched run "):
                    started.append(await background(command, env, ports, tmp_path))
                elif "wait_s" in command:
                    waiting.append(asyncio.create_task(run(f"{command} --fail-with-body -s", env, tmp_path)))
                elif "/events" in command or "live watch" in command:
                    await run(f"timeout 3 {command.partition(';')[0]} || [ $? = 124 ]", env, tmp_path)
                else:
                    curl = command.startswith("curl")
                    said = await run(f"{command} -s" if curl else command, env, tmp_path)
                    assert not any(code in said for code in ("UNAUTHORIZED", "MEDIA_TYPE")), (command, said)
                for task in waiting if len(started) >= 5 else []:
                    assert json.loads(await task)["worker"] == "gpu-a#1"
                if len(started) >= 5:
                    waiting.clear()
    finally:
        os.environ.pop("DHSCHED_STORE", None)
        for process in reversed(started):
            await process.stop()
    assert len(started) == 5, "a store, two replicas, an Infer-Controller and a Worker"


async def background(command: str, env: Mapping[str, str], ports: Mapping[str, str], folder: Path) -> Process:
    words = [word.strip("'") for word in command.replace("$DHSCHED_STORE", env.get("DHSCHED_STORE", "")).split()[1:]]
    more: list[str] = []
    if words[1] == "infer":
        more = ["--port", ports["7401"]]
    elif words[1] == "worker":
        more = ["--locks", str(folder)]
    process = await start(*words, *more)
    if words[1] != "worker":
        await until(lambda: process.printed or process.url, command, 30)
    return process
