"""Why a runtime ended: its own words, wherever an operator looks for them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.types import REASON_BYTES_MAX
from dhsched.worker.exec import Exec
from tests.harness.fleet import until
from tests.harness.processes import FleetProcesses, processes
from tests.harness.recovering import Recovering, ready, recovering, verb
from tests.harness.troubled import speak

CRASH = "OutOfMemoryError: CUDA out of memory. [31mTried to allocate 2.00 GiB"
TROUBLED = ("--runtime", "tests.harness.troubled:speak")


async def worker_with_a_live(f: Recovering, p: FleetProcesses) -> None:
    await p.worker("w0", *TROUBLED)
    await f.until("/v1/workers", lambda found: ready(found) == 1, "the Worker")
    await f.create("a")


async def generations(f: Recovering, epoch: int) -> list[Any]:
    """The live's history once it is in this epoch, the current generation first."""
    await f.until("/v1/lives/a", lambda found: found["epoch"] >= epoch and found["claimed"], f"epoch {epoch}")
    found: list[Any] = (await f.get("/v1/lives/a/history"))["generations"]
    return found


async def printed(f: Recovering, *words: str) -> str:
    env = {"DHSCHED_URL": f.dispatch[0]}
    return (await asyncio.to_thread(CliRunner().invoke, cli.app, words, env=env)).output


async def test_what_a_runtime_raised_is_in_history_events_and_live_get(tmp_path: Path) -> None:
    async with recovering(tmp_path, worker_ttl_s=30) as f:
        await f.start_worker(speak, "w0")
        await f.create("a")
        assert (await f.push("a", "crash"))[0] == 200
        rows = await generations(f, 2)
        first = rows[-1]
        assert first["reason"].startswith(CRASH), rows
        assert "troubled.py:" in first["reason"] and "allocate" in first["reason"], "where it was raised"
        assert len(first["reason"].encode()) <= REASON_BYTES_MAX and first["reason"].isprintable()
        shown = (await f.get("/v1/lives/a"))["crash"]
        assert shown["reason"].startswith(CRASH) and shown["worker"] == first["worker"]
        crashed = await f.events("live_crashed")
        assert crashed[0]["live_id"] == "a" and crashed[0]["worker"] == first["worker"]
        assert crashed[0]["numbers"]["reason"] == first["reason"] and crashed[0]["numbers"]["epoch"] == 1
        assert CRASH in await printed(f, "live", "history", "a")
        assert CRASH in await printed(f, "live", "get", "a")


@pytest.mark.release
async def test_a_dead_letter_says_what_the_last_generation_died_of(tmp_path: Path) -> None:
    async with recovering(tmp_path, worker_ttl_s=30) as f, processes(f) as p:
        await worker_with_a_live(f, p)
        assert (await f.push("a", "crash"))[0] == 200
        await f.until("/v1/lives/a", lambda found: found["dropped"]["poison"] == 1, "the end of the poison")
        [letter] = (await verb(f, "dead-letters", "a"))["items"]
        assert letter["text"] == "crash" and letter["reason"].startswith(CRASH)
        [event] = await f.events("poison_dropped")
        assert event["numbers"]["reason"] == letter["reason"]
        assert CRASH in await printed(f, "dead-letters", "a")
        assert (await verb(f, "dead-letters", "a", "--push", letter["id"]))["seq"] == 2, "it is the item that is pushed"
        assert (await verb(f, "dead-letters", "a"))["items"] == []


async def test_the_last_words_of_a_child_and_its_status_are_the_reason(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "import sys\n"
        "for line in sys.stdin:\n"
        "    if 'input' in line:\n"
        "        print('x' * 5000, 'no weights at /models/anna\\x07', file=sys.stderr)\n"
        "        sys.exit(3)\n"
    )
    async with recovering(tmp_path, worker_ttl_s=30) as f:
        await f.start_worker(Exec(f"{sys.executable} {script}"), "w0")
        await f.create("a")
        assert (await f.push("a", "hello"))[0] == 200
        reason = (await generations(f, 2))[-1]["reason"]
        assert "status 3" in reason and reason.endswith("no weights at /models/anna")
        assert len(reason.encode()) <= REASON_BYTES_MAX


@pytest.mark.release
async def test_a_runtime_that_returns_says_so_and_one_that_was_told_to_stop_says_nothing(tmp_path: Path) -> None:
    async with recovering(tmp_path, worker_ttl_s=30) as f, processes(f) as p:
        await worker_with_a_live(f, p)
        assert (await f.push("a", "return"))[0] == 200
        assert (await generations(f, 2))[-1]["reason"] == "returned"
        await f.until("/v1/lives/a", lambda found: found["acked"] == 1, "the end of the item")
        other = await p.worker("w1", *TROUBLED)
        await f.until("/v1/workers", lambda found: ready(found) == 2, "the other Worker")
        at = await f.get("/v1/lives/a")
        assert (await f.reassign("a"))[0] == 200
        await until(lambda: bool(other.opened("a")), "its runtime")
        rows = await generations(f, at["epoch"] + 1)
        assert [row["reason"] for row in rows[:2]] == ["", ""], "moved away, it was told to stop"
        assert {e["numbers"]["reason"] for e in await f.events("live_crashed")} == {"returned"}
