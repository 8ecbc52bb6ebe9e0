"""The log of a live: lines of its runtimes, over all generations, also of a Worker that was killed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.store.link.address import Address
from dhsched.store.records.logs import KeptLine, LogRecords, RuntimeLine
from dhsched.store.steps.redis import RedisStore
from dhsched.worker import Session
from dhsched.worker.exec import exec_runtime
from tests.harness.acked import until_acked
from tests.harness.fleet import Fleet, fleet, until, until_so
from tests.harness.processes import processes, start
from tests.harness.replicas import place, register

CHILD = """
import json, sys
print("not JSON", flush=True)
for line in sys.stdin:
    said = json.loads(line)
    if "input" in said:
        print("heard " + said["input"]["text"], file=sys.stderr, flush=True)
        if said["input"]["text"] == "die":
            print("last words", end="", file=sys.stderr, flush=True)
            sys.exit(3)
        print(json.dumps({"ack": said["input"]["seq"]}), flush=True)
    elif "close" in said:
        break
"""
SPEAKER = """
import structlog
log = structlog.get_logger()

async def speaker(session):
    print("printed by", session.generation.epoch, flush=True)
    log.info("opened", model="anna")
    async for item in session.inputs():
        session.log("said " + item.text)
        if item.text == "raise":
            raise ValueError("as told")
"""


async def logs(session: Session) -> None:
    session.log("built")
    async for item in session.inputs():
        session.log(f"heard {item.text}")


async def until_logged(f: Fleet, live: str, *texts: str) -> list[dict[str, Any]]:
    """The lines of the live, once each of these is there."""

    def whole(document: Any) -> bool:
        kept = [line["text"] for line in document["lines"]]
        return all(any(text in line for line in kept) for text in texts)

    document = await until_so(lambda: f.get(f"/v1/lives/{live}/logs"), whole, str(texts))
    lines: list[dict[str, Any]] = document["lines"]
    return lines


def line(text: bytes, worker: str, epoch: int = 1, live: str = "default/L") -> RuntimeLine:
    return RuntimeLine(live, worker, epoch, "info", text)


async def write(store: RedisStore, *lines: RuntimeLine, lines_max: int = 300, bytes_max: int = 32_768) -> int:
    kept: int = await store.records.logs.write(lines, lines_max, bytes_max, deadline_s=5)
    return kept


async def kept(records: LogRecords, live: str = "default/L", after: int = 0, limit: int = 1_000) -> list[KeptLine]:
    return await records.after(live, after, limit)


async def test_a_worker_writes_lines_of_its_own_slots_and_generations_only(server: Address) -> None:
    async with await RedisStore.open(server, limits=Limits(ended_ttl_ms=1)) as store:
        a, b = await register(store, 2, capacity=4)
        await place(store, "L", a)
        assert await write(store, line(b"of a", a), line(b"of b", b), line(b"never issued", a, 2)) == 1
        assert await write(store, line(b"nobody's", a, 1, "default/none")) == 0
        await store.place(live="default/L", operation="op-2", expected=1, cause="reassign", candidates=[b])
        assert await write(store, line(b"teardown of a", a), line(b"of b", b, 2)) == 2, "a still departs"
        await store.depart(worker=a, live="default/L", number=1)
        assert await write(store, line(b"too late", a)) == 0
        await store.depart(worker=b, live="default/L", number=2, reason="crashed")
        assert await write(store, line(b"last words", b, 2)) == 1, "until it is placed anew"
        lines = await kept(store.records.logs)
        assert [(each.n, each.epoch, each.worker, each.text) for each in lines] == [
            (1, 1, a, "of a"),
            (2, 1, a, "teardown of a"),
            (3, 2, b, "of b"),
            (4, 2, b, "last words"),
        ]
        assert all(each.at_ms > 0 for each in lines)
        await store.end_live(live="default/L")
        await until_so(lambda: store.look(live="default/L"), lambda outcome: isinstance(outcome, o.Swept), "the sweep")
        assert await kept(store.records.logs) == []
        assert await write(store, line(b"after the end", b, 2)) == 0, "nobody would delete it"


async def test_a_log_keeps_its_last_lines_within_both_limits(server: Address) -> None:
    async with await RedisStore.open(server) as store:
        [a] = await register(store, 1, capacity=4)
        await place(store, "L", a)
        records = store.records.logs
        for n in range(20):
            await write(store, line(b"line %d" % n, a), lines_max=5)
        assert [each.text for each in await kept(records)] == [f"line {n}" for n in range(15, 20)]
        assert [each.n for each in await kept(records)] == [*range(16, 21)]
        assert [each.n for each in await kept(records, after=18)] == [19, 20]
        assert [each.n for each in await kept(records, limit=2)] == [19, 20]
        for n in range(20):
            await write(store, line(b"%02d" % n + b"x" * 500, a), bytes_max=2_048)
            lines = await kept(records)
            assert sum(len(each.text) + len(f"{each.at_ms} 1 {a} info ") for each in lines) <= 2_048
        assert [each.text[:2] for each in await kept(records)] == ["17", "18", "19"]
        await write(store, line(b"y" * 1_000, a), bytes_max=10)
        assert [each.text[:1] for each in await kept(records)] == ["y"], "the last line is always kept"


async def test_a_log_has_the_lines_of_every_generation(tmp_path: Path) -> None:
    async with fleet(tmp_path, with_loops=True) as f:
        for name in ("w1", "w2"):
            await f.start_worker(logs, name)
        await f.create("L")
        await f.push("L", "one", boundary=True)
        await until_acked(f, "L", 1)
        assert (await f.reassign("L"))[0] == 200
        await f.push("L", "two")
        lines = await until_logged(f, "L", "heard two")
        told = [(each["epoch"], each["text"]) for each in lines]
        assert told[:2] == [(1, "built"), (1, "heard one")] and (2, "built") in told
        assert {each["source"] for each in lines} == {"info"}
        assert (await f.get("/v1/lives/none/logs"))["code"] == "NOT_FOUND"
        samples = f.controllers[0].context.service.registry.get_sample_value
        await until(lambda: samples("dhsched_log_lines_total") == len(lines), "the count of lines")
        assert samples("dhsched_log_lines_dropped_total") == 0


async def test_both_outputs_of_a_child_are_logged_up_to_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    with exec_runtime(f"{sys.executable} {script}") as runtime:
        async with fleet(tmp_path, with_loops=True) as f:
            await f.start_worker(runtime, "w1")
            await f.create("L")
            await f.push("L", "hello")
            await f.push("L", "die")
            lines = await until_logged(f, "L", "heard hello", "last words")
            told = [(each["source"], each["text"]) for each in lines if each["epoch"] == 1]
            assert told[:4] == [
                ("stdout", "not JSON"),
                ("stderr", "heard hello"),
                ("stderr", "heard die"),
                ("stderr", "last words"),
            ]


async def test_a_controller_keeps_nothing_of_a_worker_that_says_too_much_and_counts_it(tmp_path: Path) -> None:
    async def floods(session: Session) -> None:
        async for _ in session.inputs():
            for n in range(1_000):
                session.log(f"line {n}")

    async with fleet(tmp_path) as f:
        await f.start_worker(floods, "w1", log_lines_per_s=50)
        await f.create("L")
        await f.push("L", "go")
        lines = await until_logged(f, "L", "lines")
        assert [each["text"] for each in lines[:2]] == ["line 0", "line 1"]
        [dropped] = [each for each in lines if each["source"] == "dropped"]
        assert 0 < int(dropped["text"].split()[0]) <= 950
    async with fleet(tmp_path, log_lines_max=0) as f:
        await f.start_worker(logs, "w2")
        await f.create("L")
        await f.push("L", "one")
        await until_acked(f, "L", 1)
        counts = f.controllers[0].context.logs
        await until(lambda: counts.dropped >= 2, "the count of lines that are not kept")
        assert (await f.get("/v1/lives/L/logs"))["lines"] == []


@pytest.mark.release
async def test_the_verb_shows_what_a_killed_worker_has_logged_and_its_successor(tmp_path: Path) -> None:
    (tmp_path / "speaker.py").write_text(SPEAKER)
    environment = {"PYTHONPATH": str(tmp_path)}
    options = ("--runtime", "speaker:speaker", "--log-level", "info")
    async with fleet(tmp_path, with_loops=True, replica={"worker_ttl_s": 1.0}) as f, processes(f) as p:
        first = await p.worker("w1", *options, "--process-per-live", environment=environment)
        await p.workers_ready(1)
        await f.create("L")
        await f.push("L", "hello")
        await until_logged(f, "L", "printed by 1", "opened", "said hello")
        follower = await start("live", "logs", "L", "--follow", "--json", "--url", f.dispatch[0])
        second = await p.worker("w2", *options, environment=environment)
        await p.workers_ready(2)
        first.kill()
        await f.push("L", "again")
        await until_logged(f, "L", "said again")
        shown = await run("live", "logs", "L", url=f.dispatch[0])
        assert "w1#1  epoch 1  stderr   printed by 1" in shown and "w2#2  epoch 2  info     said again" in shown
        assert "w2#2  epoch 2  info     opened model=anna" in shown
        assert len((await run("live", "logs", "L", "-n", "2", url=f.dispatch[0])).splitlines()) == 2
        document = json.loads(await run("live", "logs", "L", "--json", url=f.dispatch[0]))
        await f.push("L", "raise")
        crash = await until_logged(f, "L", "runtime crashed", "ValueError: as told")
        assert {"error"} == {each["source"] for each in crash if "Value" in each["text"] or "Trace" in each["text"]}
        await f.post(f"{f.dispatch[0]}/v1/lives/L/end")
        assert await follower.ended() == 0
        assert follower.lines[: len(document["lines"])] == document["lines"]
        assert second.returncode is None


async def run(*words: str, url: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env={"DHSCHED_URL": url})
    assert result.exit_code == 0, result.output
    return result.stdout
