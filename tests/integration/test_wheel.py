"""From the built wheel in an empty environment: the command, a whole deployment, a Worker killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import ROOT

STEP_S = 60.0


@pytest.mark.release
@pytest.mark.timeout(300)
async def test_the_wheel_brings_everything_that_up_needs(tmp_path: Path) -> None:
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("DHSCHED", "PYTHON"))},
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }

    async def step(*words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run, words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240
        )

    built = await step(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT))
    assert built.returncode == 0, built.stderr
    wheel = next(name for name in os.listdir(tmp_path) if name.endswith(".whl"))
    assert (await step(sys.executable, "-m", "venv", "env")).returncode == 0
    done = await step(
        "env/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", f"./{wheel}[embedded]"
    )
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip(f"NOT TESTED from a wheel: its dependencies cannot be installed here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    await live_goes_on(tmp_path / "env" / "bin" / "dhsched", env, tmp_path)


async def live_goes_on(dhsched: Path, env: dict[str, str], folder: Path) -> None:
    up = await asyncio.create_subprocess_exec(
        *(str(dhsched), "up", "--any-port"), env=env, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    assert up.stdout is not None
    lines: list[str] = []

    async def read() -> None:
        assert up.stdout is not None
        async for line in up.stdout:
            lines.append(line.decode())

    reading = asyncio.create_task(read())

    async def heard(text: str) -> str:
        for _ in range(int(STEP_S / 0.1)):
            if found := [line for line in lines if text in line]:
                return found[0]
            await asyncio.sleep(0.1)
        raise AssertionError(f"waited {STEP_S:g} s for {text!r}; heard {''.join(lines)}")

    async def verb(*words: str) -> str:
        done = await asyncio.create_subprocess_exec(
            *(str(dhsched), *words), env=env, cwd=folder, stdout=asyncio.subprocess.PIPE
        )
        said = (await done.communicate())[0].decode()
        assert done.returncode == 0, (words, said)
        return said

    try:
        await heard("live why")
        assert "pip install 'dhsched[avatar]'" in "".join(lines), "it says how to get the face"
        where = {line.split()[0]: line.split() for line in lines if " pid " in line}
        env = {**env, "DHSCHED_URL": where["dispatch-1"][-1], "DHSCHED_INFER": where["infer-1"][-1]}
        made = json.loads(await verb("live", "create", "anna", "--id", "L", "--json"))
        await verb("live", "push", "L", "before")
        await heard('"before"')
        os.kill(int(where[made["worker"].partition("#")[0]][2]), signal.SIGKILL)
        await verb("live", "push", "L", "after")
        assert json.loads(await heard('"after"'))["epoch"] == 2
        up.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(up.wait(), STEP_S) == 0
    finally:
        if up.returncode is None:
            up.kill()
            await up.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
