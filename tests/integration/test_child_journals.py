"""The journal of a runtime in a process of its own: an `--exec` child, and a process per live."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dhsched import testing
from dhsched.errors import ChildFailed
from dhsched.testing import ScriptedLive
from dhsched.worker.child_session import PythonChildSession, command_of
from dhsched.worker.exec import Exec, child_runtime
from tests.harness.child_runtimes import listens, remembers
from tests.harness.fleet import fleet, until_so
from tests.harness.processes import processes

WAIT_S = 60.0
CHILD = """
import json, os, sys

def say(**what):
    print(json.dumps(what), flush=True)

say(journal={})
for line in sys.stdin:
    said = json.loads(line)
    if "journal" in said:
        print("read", json.dumps(said["journal"]["entries"]), file=sys.stderr, flush=True)
    elif "input" in said:
        seq, text = said["input"]["seq"], said["input"]["text"]
        if text == "summary":
            say(replace=[])
            say(append=["a summary"])
            say(ack=seq)
        elif text == "die":
            say(append=["never stored"])
            os._exit(3)
        elif text == "later":
            pass
        elif text == "too much":
            say(append=["x" * 70_000], ack=seq)
        elif text == "no list":
            say(append="text", ack=seq)
        else:
            say(ack=seq, **({"append": [{"heard": text}]} if text else {}))
    elif "close" in said:
        break
"""


@asynccontextmanager
async def exec_live(folder: Path, source: str = CHILD) -> AsyncIterator[ScriptedLive]:
    script = folder / "child.py"
    script.write_text(source)
    async with testing.live(Exec(f"{sys.executable} {script}"), wait_s=WAIT_S, teardown_s=WAIT_S) as made:
        yield made


@asynccontextmanager
async def process_live(**how: Any) -> AsyncIterator[ScriptedLive]:
    with child_runtime(command_of(remembers, None), kind=PythonChildSession, close_s=WAIT_S) as run:
        async with testing.live(run, wait_s=WAIT_S, teardown_s=WAIT_S, **how) as made:
            yield made


async def test_a_child_reads_its_journal_and_writes_it_with_its_acks(tmp_path: Path) -> None:
    async with exec_live(tmp_path) as live:
        await live.push("one")
        await live.acked(1)
        await live.push("two", boundary=True)
        await live.acked(2)
        assert live.journal == [{"heard": "one"}, {"heard": "two"}]
        await live.push("die")
        assert isinstance(await live.failed(), ChildFailed)
        await live.interrupt()
        await live.acked(4)
        assert "never stored" not in live.journal, "what no ack has brought is not in it"
        heard = 'read [{"heard": "one"}, {"heard": "two"}]'
        await live.until(lambda: heard in live.logs, "the next child, which reads what was stored")
        await live.push("summary")
        await live.push("three")
        await live.acked(6)
        assert live.journal == ["a summary", {"heard": "three"}]


async def test_one_ack_brings_the_journal_of_all_items_that_it_is_about(tmp_path: Path) -> None:
    async with exec_live(tmp_path) as live:
        for text in ("later", "later", "now"):
            await live.push(text)
        await live.acked(3)
        assert [seq for seq, _ in live.acks] == [3] and live.journal == [{"heard": "now"}]


@pytest.mark.parametrize(
    ("source", "text", "says"),
    [
        (CHILD, "too much", "wrote what its journal cannot take: a journal entry has 70004 bytes"),
        (CHILD, "no list", "append and replace have lists of entries"),
        (CHILD.replace("say(journal={})", ""), "one", "wrote to its journal before it had read it"),
    ],
)
async def test_a_child_that_writes_what_cannot_be_stored_fails(
    tmp_path: Path, source: str, text: str, says: str
) -> None:
    async with exec_live(tmp_path, source) as live:
        await live.push(text)
        failure = await live.failed()
        assert isinstance(failure, ChildFailed) and says in str(failure)
        await live.interrupt()
        await live.acked()


async def test_a_process_per_live_has_the_journal_of_the_session() -> None:
    async with process_live() as live:
        for text in ("one", "bytes", "two"):
            await live.push(text)
        await live.acked(3)
        assert live.journal == [{"heard": "one"}, b"\x00\xff", {"heard": "two"}]
        await live.push("lost")
        await live.failed()
        await live.interrupt()
        await live.acked()
        assert live.saved_state["read"] == [repr(value) for value in live.journal[:3]], "the next process has read it"
        await live.push("summary", boundary=True)
        await live.acked()
        assert live.journal == ["4 turns"]
        await live.push("long")
        await live.push("after", boundary=True)
        await live.acked()
        assert len(live.journal) == 17 and live.journal[-1] == {"heard": "after"}, "a megabyte goes in one message"
        await live.move()
        await live.push("moved")
        await live.acked()
        assert live.journal[-2:] == [{"heard": "after"}, {"heard": "moved"}]


@pytest.mark.release
async def test_a_journal_goes_on_after_the_worker_of_its_process_was_killed(tmp_path: Path) -> None:
    options = ("--runtime", "tests.harness.child_runtimes:remembers", "--process-per-live")
    async with fleet(tmp_path, with_loops=True, replica={"worker_ttl_s": 1.0}) as f, processes(f) as p:
        first = await p.worker("w1", *options)
        await p.workers_ready(1)
        await f.create("L")
        await f.push("L", "one")

        async def journal() -> list[bytes]:
            key = f.replicas[0].store.keys.of("journal", "default/L")
            entries: list[bytes] = await f.replicas[0].store.link.call("LRANGE", key, 0, -1)
            return entries

        await until_so(journal, lambda entries: len(entries) == 1, "the first entry")
        await p.worker("w2", *options)
        await p.workers_ready(2)
        first.kill()
        await f.push("L", "two")
        kept = await until_so(journal, lambda entries: len(entries) == 2, "the second entry")
        assert [entry[2:] for entry in kept] == [b'{"heard":"one"}', b'{"heard":"two"}']


async def test_a_process_stores_what_was_no_input_and_keeps_it_over_a_crash() -> None:
    with child_runtime(command_of(listens, None), kind=PythonChildSession, close_s=WAIT_S) as run:
        async with testing.live(run, wait_s=WAIT_S, teardown_s=WAIT_S) as live:
            await live.until(lambda: live.journal == ["generation 1 listens"])
            await live.push("one", boundary=True)
            await live.until(lambda: live.journal[1:] == ["one", "after one"])
            await live.crash()
            await live.until(lambda: live.journal[3:] == ["generation 2 listens"])
            assert live.last_acked == 1 and [seq for seq, _ in live.acks] == [0, 1, 0, 0], "nothing is sent twice"


async def test_an_ack_of_0_stores_the_journal_of_an_exec_child(tmp_path: Path) -> None:
    child = "import sys\nprint('{\"journal\": {}}', flush=True)\ninput(), input()\n"
    child += 'print(\'{"append": ["early"], "ack": 0}\', flush=True)\nsys.stdin.read()\n'
    async with exec_live(tmp_path, child) as live:
        await live.until(lambda: live.journal == ["early"])
        assert live.last_acked == 0
