"""`dhsched dev` with real processes: a changed file is the code of the live's next generation."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from dhsched.local.pids import alive
from tests.harness.fleet import until
from tests.harness.processes import Process, children_of, start

RUNTIME = """
import structlog
log = structlog.get_logger()

async def avatar(session):
    async for item in session.inputs():
        log.info("WORD " + item.text)
"""
START_S = 120.0


class Dev:
    """The verb that runs, and other verbs against its deployment."""

    def __init__(self, process: Process, file: Path) -> None:
        self.process = process
        self.file = file

    async def printed(self, *parts: str) -> None:
        def there() -> bool:
            return any(all(part in line for part in parts) for line in self.process.printed)

        await until(there, str(parts), START_S)

    async def verb(self, *words: str) -> None:
        [url] = [found[1] for line in self.process.printed if (found := re.search(r"export DHSCHED_URL=(\S+)", line))]
        process = await start(*words, "--url", url)
        assert await process.ended() == 0, process.printed


@pytest.mark.release
async def test_a_changed_file_is_the_code_of_the_next_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "source"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    file = folder / "my_reloaded_runtime.py"
    file.write_text(RUNTIME.replace("WORD", "old"))
    dev = Dev(await start("dev", "my_reloaded_runtime:avatar", "--any-port"), file)
    left: list[int] = []
    try:
        await dev.printed("live push hello")
        await dev.verb("live", "create", "anna", "--id", "hello")
        await dev.verb("live", "push", "hello", "one", "--boundary")
        await dev.printed("hello@1", "old one")
        left = children_of(dev.process.pid)

        file.write_text("def broken(:\n")
        await dev.printed("my_reloaded_runtime.py, line 1", "the Worker goes on with the code before")
        file.write_text("raise RuntimeError('at import')\n")
        await dev.printed("the new Worker ended with status", "the Worker goes on with the code before")
        await dev.verb("live", "push", "hello", "two", "--boundary")
        await dev.printed("hello@1", "old two")

        file.write_text(RUNTIME.replace("WORD", "new"))
        await dev.printed("worker-3 runs the new code")
        await dev.verb("live", "push", "hello", "three", "--boundary")
        await dev.printed("hello@2", "new three")
        left += children_of(dev.process.pid)
        dev.process.signal(signal.SIGINT)
        assert await dev.process.ended(START_S) == 0
    finally:
        dev.process.kill()
        await dev.process.ended()
    await until(lambda: not any(alive(pid) for pid in left), "the end of every child")


@pytest.mark.release
async def test_code_that_cannot_be_imported_ends_it_at_once_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "my_failing_runtime.py").write_text("raise RuntimeError('at import')\n")
    process = await start("dev", "my_failing_runtime:avatar", "--any-port")
    assert await process.ended(START_S) == 1
    assert any("at import" in line for line in process.printed), "the reason is shown"
