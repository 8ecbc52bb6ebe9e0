"""What the verbs print: whole lines in a pipe, on a terminal as much as fits, and an id is never broken or cut."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fcntl import ioctl
from typing import Any

import pytest

from dhsched.ownership.items import stored
from tests.harness.fleet import until_so
from tests.harness.servers import empty_server
from tests.harness.serving import Api, serving

Verb = tuple[str, ...]
COLUMNS = 80
LIVE = "customer-4711-evening-show-with-a-long-and-telling-identifier"
POOL = "gpu-l40s-frankfurt-a"
DIGITAL_ID = "anna-presenter-of-the-evening-news"
RUN_S = 60
AN_INSTANT = 1_794_000_000_000
RAW_MS = re.compile(r"\b1[6-9]\d{11}\b")  # An instant in milliseconds, as the API has it.


MARK = "=== that was it ==="
ALL = f"""
import json, sys
from dhsched.cli import app
for words in json.loads(sys.argv[1]):
    app(words, standalone_mode=False)
    sys.stderr.flush()
    print({MARK!r}, flush=True)
"""
"""One process runs many verbs: it takes longer to start than all of them to run."""


@dataclass
class Shown:
    """A deployment with names as long as people give them."""

    api: Api
    worker: str
    spare: str

    async def piped(self, *verbs: Verb) -> list[str]:
        return await asyncio.to_thread(in_a_pipe, self.url, *verbs)

    async def on_terminal(self, *verbs: Verb) -> list[str]:
        return await asyncio.to_thread(on_a_terminal, self.url, *verbs)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.api.client.port}"


def command(url: str, verbs: tuple[Verb, ...]) -> tuple[list[str], dict[str, str]]:
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return [sys.executable, "-c", ALL, json.dumps(verbs)], {**env, "DHSCHED_URL": url, "TERM": "xterm"}


def in_a_pipe(url: str, *verbs: Verb) -> list[str]:
    line, env = command(url, verbs)
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(f"{MARK}\n")[:-1]


def on_a_terminal(url: str, *verbs: Verb) -> list[str]:
    line, env = command(url, verbs)
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with subprocess.Popen(line, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                more = os.read(ours, 65_536)
            except OSError:  # What a terminal says when nobody writes to it any more.
                break
            if not more:
                break
            said += more
        os.close(ours)
        assert process.wait(RUN_S) == 0, said.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode()).replace("\r\n", "\n")
    return plain.split(f"{MARK}\n")[:-1]


@asynccontextmanager
async def shown() -> AsyncIterator[Shown]:
    async with empty_server("valkey") as server, serving(server.address) as api:
        pool = {"region": "eu-central-1", "gpu_class": "l40s", "labels": ["low-latency", "wide-colour-gamut"]}
        assert (await api("PUT", f"/v1/pools/{POOL}", pool))[0] < 300
        body = {"pools": [{"pool": POOL}], "preferred_labels": ["low-latency"]}
        assert (await api("PUT", f"/v1/digital-ids/{DIGITAL_ID}", body))[0] < 300
        workers = await api.workers(2, capacity=10, pool=POOL, name="node-17-of-rack-4-")
        asked = {"live_id": LIVE, "digital_id": DIGITAL_ID, "metadata": {"title": "Good evening"}}
        status, placed = await api("POST", "/v1/lives?wait_s=10", asked)
        assert status == 201, placed
        [spare] = [each for each in workers if each != placed["worker"]]
        yield Shown(api, placed["worker"], spare)


async def trouble(at: Shown) -> None:
    """Something for the verbs that show trouble."""
    store = at.api.context.store
    letter = stored("text", b"first line\nsecond line \x1b[31m" + b"x" * 200, False)
    await store.link.call("RPUSH", store.keys.of("dead", f"default/{LIVE}"), letter)
    for verb in ("cordon", "uncordon"):
        assert (await at.api("POST", f"/v1/workers/{at.worker.replace('#', '%23')}/{verb}"))[0] == 200

    at.api.context.events.say(
        "live_recovered", live="default/show-1", worker=at.worker, lost_at_ms=AN_INSTANT, waiting_since_ms=AN_INSTANT
    )

    async def written() -> Any:
        return (await at.api("GET", "/v1/events"))[1]["events"]

    await until_so(written, lambda found: len(found) >= 3, "three events")


def unbroken(printed: str, verb: tuple[str, ...], *ids: str) -> None:
    for each in ids:
        assert each in printed, f"{verb}: {each} is not there in one piece:\n{printed}"
    assert not RAW_MS.search(printed), f"{verb}: a time in milliseconds:\n{printed}"
    assert "\x1b" not in printed and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", printed), f"{verb}: {printed!r}"


async def test_a_pipe_gets_whole_lines_and_a_narrow_terminal_what_fits_with_every_id_whole() -> None:
    async with shown() as at:
        await trouble(at)
        drained = ("worker", "drain", at.worker, "--deadline", "600")
        verbs: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
            (("live", "ls"), (LIVE,)),
            (("live", "get", LIVE), (LIVE, at.worker, DIGITAL_ID)),
            (("live", "history", LIVE), (at.worker,)),
            (("live", "why", LIVE), (LIVE, POOL, at.worker)),
            (("why", LIVE), (LIVE, POOL, at.worker)),
            (("worker", "ls"), (at.worker, at.spare)),
            (("worker", "get", at.worker), (at.worker, POOL, LIVE)),
            (("pool", "ls"), (POOL,)),
            (("pool", "get", POOL), (POOL,)),
            (("pool", "rebalance", POOL), (POOL,)),
            (("digital-id", "ls"), (DIGITAL_ID,)),
            (("digital-id", "get", DIGITAL_ID), (DIGITAL_ID, POOL)),
            (("events",), (at.worker,)),
            (("dead-letters", LIVE), ("first line",)),
            (("top", "--once"), (POOL, at.worker, at.spare)),
            (drained, (at.worker, LIVE)),
            (("worker", "drained", at.worker), (at.worker, LIVE)),
            (("worker", "undrain", at.worker), (at.worker,)),
        ]
        asked = [words for words, _ in verbs]
        looks: list[tuple[dict[Verb, str], int]] = []
        for look in (at.piped, at.on_terminal):
            await at.api.context.events.written()
            events = len((await at.api("GET", "/v1/events"))[1]["events"])
            looks.append((dict(zip(asked, await look(*asked), strict=True)), events))
    for printed, _ in looks:
        for words, ids in verbs:
            unbroken(printed[words], words, *ids)
    (in_pipe, events_then), (on_screen, events_now) = looks
    for words, rows in {("live", "ls"): 1, ("worker", "ls"): 2, ("dead-letters", LIVE): 1}.items():
        one_line_for_each_row(words, in_pipe[words], rows, on_screen[words], rows)
    one_line_for_each_row(("events",), in_pipe["events",], events_then, on_screen["events",], events_now)
    [row] = [line for line in in_pipe["live", "ls"].splitlines() if LIVE in line]
    assert {at.worker, DIGITAL_ID, "open"} <= set(row.split()), "a pipe gets every column"


def one_line_for_each_row(words: Verb, in_pipe: str, rows_in_pipe: int, on_screen: str, rows_on_screen: int) -> None:
    """And the terminal says what it left out."""
    piped, terminal = in_pipe.splitlines(), on_screen.splitlines()
    assert len(piped) == rows_in_pipe + 1, f"{words}: {piped}"
    table, hints = terminal[: rows_on_screen + 1], terminal[rows_on_screen + 1 :]
    assert all(len(line) <= COLUMNS for line in table), f"{words}: {table}"
    assert len(hints) <= 1, f"{words}: {hints}"
    left_out = set(re.split(r"\s{2,}", piped[0])) - set(re.split(r"\s{2,}", table[0]))
    assert not left_out or "-o wide" in hints[0], f"{words}: {left_out} are left out without a word"
    for name in left_out:
        assert name.lower() in hints[0].lower()


async def test_lives_without_a_worker_and_keys_too() -> None:
    async with shown() as at:
        _, key = await at.api.context.ring.create(role="app", tenant="a-tenant-with-a-rather-long-name", note="x" * 60)
        store = at.api.context.store
        record = await store.link.call("HGET", store.keys.of("worker", at.worker), "beat")
        await store.expire_worker(worker=at.worker, beat=int(record))
        verbs = {("recoveries",): LIVE, ("key", "ls"): key.id, ("live", "history", LIVE): at.worker}
        for look in (at.piped, at.on_terminal):
            for printed, (words, name) in zip(await look(*verbs), verbs.items(), strict=True):
                unbroken(printed, words, name)
                assert len([line for line in printed.splitlines() if name in line]) == 1, printed


@pytest.mark.release
def test_what_this_machine_says_fits_a_terminal_too() -> None:
    nowhere, verbs = "http://127.0.0.1:1", (("config",), ("doctor",))
    for piped, terminal in zip(in_a_pipe(nowhere, *verbs), on_a_terminal(nowhere, *verbs), strict=True):
        for line in piped.splitlines():
            first = re.split(r"\s{2,}", line)[0]
            assert first in terminal, f"{first} is broken:\n{terminal}"
