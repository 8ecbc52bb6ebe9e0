"""One process of tenant A: attacks of some kinds, each at a fixed rate, for some seconds; then one line of JSON.

    python -m tests.attack.attackers --dispatch URL --infer URL --kinds creates,pushes --seconds 10 --scale 1

The token is in the environment, as DHSCHED_ATTACK_TOKEN. `ready` is printed when the attacks begin.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

TOKEN = "DHSCHED_ATTACK_TOKEN"
ADDRESS = "127.0.0.2"  # Attackers come from another address than tenant B, as they would.
HELD_S = 2.0  # A stream or a watcher stays open for this long.
SLOW_S = 15.0  # A slow connection sends a byte every SLOW_STEP_S for this long, or until it is closed.
SLOW_STEP_S = 0.5
GIVE_UP_S = 20.0  # A request without an answer after this time counts as unanswered.
OPEN_MAX = 400  # Requests and connections of one kind at once; past this the next one is left out.
TEXT = "x" * 16_384
"""The largest text that a controller takes."""
DEEP: Any = "x"
for _ in range(60):
    DEEP = {"deeper": DEEP}
LARGE = {"digital_id": "anna", "metadata": {"deep": DEEP, "wide": [{} for _ in range(4_000)], "text": "x" * 40_000}}
CONFIG = {"kind": "config", "config": {"deep": DEEP, "wide": [{} for _ in range(3_500)]}}
FRAME = json.dumps([{"text": "x" * 16_000} for _ in range(60)])
"""A frame of almost a megabyte."""


@dataclass(slots=True)
class Attack:
    """What every kind of attack needs. `answers` counts, by kind, what became of each request."""

    dispatch: str
    infer: str
    token: str
    lives: list[str]
    http: aiohttp.ClientSession
    answers: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def live(self) -> str:
        return secrets.choice(self.lives)

    async def ask(self, method: str, url: str, **more: Any) -> str:
        async with self.http.request(method, url, **{"headers": self.headers, **more}) as response:
            await response.read()
            return str(response.status)


async def creates(a: Attack) -> str:
    """Create one more live."""
    return await a.ask("POST", f"{a.dispatch}/v1/lives", json={"digital_id": "anna"})


async def pushes(a: Attack) -> str:
    """Push an item of the largest size."""
    return await a.ask("POST", f"{a.infer}/v1/lives/{a.live()}/text", json={"text": TEXT})


async def frames(a: Attack) -> str:
    """Push a frame of the largest size on a stream, and wait for the first answers."""
    url = f"{a.infer}/v1/lives/{a.live()}/stream"
    async with a.http.ws_connect(url, headers=a.headers, max_msg_size=0) as socket:
        await socket.send_str(FRAME)
        answer = await socket.receive(GIVE_UP_S)
        return "200" if answer.type is aiohttp.WSMsgType.TEXT and "problem" not in answer.data else "refused"


async def large_json(a: Attack) -> str:
    """Create with the largest metadata, or push the largest configuration: wide and deep."""
    if secrets.randbelow(2):
        return await a.ask("POST", f"{a.dispatch}/v1/lives", json=LARGE)
    return await a.ask("POST", f"{a.infer}/v1/lives/{a.live()}/text", json=CONFIG)


async def lists(a: Attack) -> str:
    """List the lives, on the largest page."""
    return await a.ask("GET", f"{a.dispatch}/v1/lives?limit=1000")


async def forged(a: Attack) -> str:
    """Show a token whose signature is wrong."""
    head, payload, _ = a.token.split(".")
    shown = {"Authorization": f"Bearer {head}.{payload}.{secrets.token_urlsafe(32)}"}
    url = f"{a.infer}/v1/lives/{a.live()}/text" if secrets.randbelow(2) else f"{a.dispatch}/v1/lives"
    return await a.ask("POST", url, headers=shown, json={"text": "x"})


async def streams(a: Attack) -> str:
    """Open a WebSocket and keep it."""
    async with a.http.ws_connect(f"{a.infer}/v1/stream", headers=a.headers):
        await asyncio.sleep(HELD_S)
    return "101"


async def watchers(a: Attack) -> str:
    """Watch a live's events, without reading them."""
    async with a.http.get(f"{a.infer}/v1/lives/{a.live()}/events", headers=a.headers) as response:
        await asyncio.sleep(HELD_S)
        return str(response.status)


async def slow_heads(a: Attack) -> str:
    """Send a head a byte at a time."""
    return await drip(a.infer, b"GET /v1/lives HTTP/1.1\r\nX-Slow: ")


async def slow_bodies(a: Attack) -> str:
    """Send a body a byte at a time."""
    head = f"POST /v1/lives/{a.live()}/text HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    rest = f"Authorization: Bearer {a.token}\r\nContent-Length: 60000\r\n\r\n"
    return await drip(a.infer, (head + rest).encode())


async def drip(url: str, start: bytes) -> str:
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=tls, local_addr=(ADDRESS, 0))
    give_up = time.monotonic() + SLOW_S
    try:
        writer.write(start)
        answer = asyncio.create_task(reader.read(64))
        while time.monotonic() < give_up:
            done, _ = await asyncio.wait([answer], timeout=SLOW_STEP_S)
            if done:
                said = answer.result()
                return said[9:12].decode() if said else "closed"
            writer.write(b"x")
        answer.cancel()
        return "endured"
    finally:
        writer.close()


KINDS: dict[str, tuple[Callable[[Attack], Awaitable[str]], float]] = {
    "creates": (creates, 40),
    "pushes": (pushes, 80),
    "frames": (frames, 2),
    "large_json": (large_json, 16),
    "lists": (lists, 8),
    "forged": (forged, 80),
    "streams": (streams, 20),
    "watchers": (watchers, 20),
    "slow_heads": (slow_heads, 8),
    "slow_bodies": (slow_bodies, 8),
}
"""What is done, and how often a second; `--scale` multiplies it."""
PROCESSES = (
    ("pushes", "frames", "large_json"),
    ("creates", "lists", "forged"),
    ("streams", "watchers", "slow_heads", "slow_bodies"),
)


async def repeat(a: Attack, kind: str, scale: float, until: float) -> None:
    """Begin attacks of this kind at its rate, whether those before have been answered or not."""
    one, rate = KINDS[kind]
    answers = a.answers[kind] = Counter()
    tasks: set[asyncio.Task[None]] = set()

    async def attack() -> None:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                answers[await one(a)] += 1
        except aiohttp.WSServerHandshakeError as error:
            answers[str(error.status)] += 1
        except (aiohttp.ClientError, OSError):
            answers["closed"] += 1
        except TimeoutError:
            answers["unanswered"] += 1

    due = time.monotonic()
    while due < until:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due = max(due + 1 / (rate * scale), time.monotonic() - 1)
        if len(tasks) < OPEN_MAX:
            task = asyncio.create_task(attack())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
    answers["open at the end"] = len(tasks)
    await asyncio.gather(*tasks, return_exceptions=True)


async def run(given: argparse.Namespace) -> dict[str, dict[str, int]]:
    connector = aiohttp.TCPConnector(limit=0, local_addr=(ADDRESS, 0))
    async with aiohttp.ClientSession(connector=connector) as http:
        a = Attack(given.dispatch, given.infer, os.environ[TOKEN], given.lives.split(","), http)
        print("ready", flush=True)
        until = time.monotonic() + given.seconds
        await asyncio.gather(*(repeat(a, kind, given.scale, until) for kind in given.kinds.split(",")))
    return {kind: dict(counts) for kind, counts in a.answers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--dispatch", "--infer", "--kinds", "--lives"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--scale", type=float, default=1.0)
    print(json.dumps(asyncio.run(run(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
