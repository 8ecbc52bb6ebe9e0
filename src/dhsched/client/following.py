"""Server-sent events from any replica: a connection that breaks is made anew at the next replica."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import aiohttp

from dhsched.client.calls import NotSent, refusal_of, target_of, words
from dhsched.client.http import NO_ANSWER, Replicas, read_reply
from dhsched.errors import NotMinted, Refused, Unreachable

SILENCE_S = 30.0  # A connection without a byte for this long is broken: servers send at least every ten seconds.
CONNECT_S = 5.0  # A replica that does not accept a connection for this long is left for the next.
HELD_S = 1.0  # A connection that lasted this long counts as a success, even without events.


class ServerSent(NamedTuple):
    """One event: its id (empty if the stream has none), its name and its data."""

    id: str
    name: str
    data: dict[str, Any]


async def follow(
    replicas: Replicas, *path: str, query: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> AsyncIterator[ServerSent]:
    """Yield events until the reader stops. If they have ids, none is missed and none comes twice."""
    loop = asyncio.get_running_loop()
    tries, heard, last, troubles = 0, loop.time(), "", dict[str, str]()
    while True:
        began, url = loop.time(), replicas.url
        asked = {name: value for name, value in (query or {}).items() if not (last and name == "after")}
        sent = {**(headers or {}), **({"Last-Event-ID": last} if last else {})}
        try:
            async for event in _connection(replicas, url, target_of(*path, query=asked), sent):
                tries, heard = 0, loop.time()
                if event is not None:
                    last = event.id or last
                    yield event
            troubles[url] = "the stream ended"
        except (Refused, NotMinted) as refused:
            if refused.status < 500:
                raise
            troubles[url] = str(refused)
        except NO_ANSWER as error:
            troubles[url] = words(error)
            if loop.time() - began >= HELD_S and not isinstance(error, (aiohttp.ClientConnectorError, NotSent)):
                tries = 0
        replicas.leave(url)
        pause_s = replicas.backoff_s(tries)
        tries += 1
        if replicas.is_over(tries) or loop.time() + pause_s - heard > replicas.deadline_s + SILENCE_S:
            raise Unreachable(
                f"GET {target_of(*path)}: no {replicas.role} answered for {loop.time() - heard:.0f} s "
                f"(the last at {url}: {troubles[url]})",
                troubles,
            )
        await asyncio.sleep(pause_s)


async def _connection(
    replicas: Replicas, url: str, target: str, headers: Mapping[str, str]
) -> AsyncIterator[ServerSent | None]:
    """Yield the events of one connection, and None for a keep-alive."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
    said = {"Accept": "text/event-stream", **await replicas.access(url), **headers}
    async with replicas.http.get(url + target, timeout=timeout, headers=said) as response:
        if response.status != 200:
            raise refusal_of(await read_reply(response))
        number = name = ""
        async for line in response.content:
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key == "id":
                number = value
            elif key == "event":
                name = value
            elif key == "data":
                yield ServerSent(number, name, json.loads(value))
            elif not key:
                yield None
