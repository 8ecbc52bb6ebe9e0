"""`dhsched live push`, `interrupt` and `watch`: the input of a live, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dhsched.access.key_file import origin
from dhsched.access.minting import TENANT, TLS_CA, Minter, client_tls, find_key
from dhsched.errors import DhschedError

if TYPE_CHECKING:
    import aiohttp

INFER = "DHSCHED_INFER"
INFER_DEFAULT = "http://127.0.0.1:7401"
PUSH_S = 10.0

InferUrl = Annotated[
    str | None, typer.Option("--infer", metavar="URL", help=f"An Infer-Controller ({INFER}); {INFER_DEFAULT}.")
]


def add_to(family: typer.Typer) -> None:
    """The verbs, in the family `live`."""
    family.command("push")(push)
    family.command("interrupt")(interrupt)
    family.command("watch")(watch)


def push(
    live_id: str,
    text: Annotated[str, typer.Argument(help="What to push; for --kind config, a JSON object.")] = "",
    kind: Annotated[str, typer.Option(help="text, interrupt or config.")] = "text",
    boundary: Annotated[bool, typer.Option("--boundary", help="A sentence ends here.")] = False,
    request_id: Annotated[str | None, typer.Option(help="The same id again is the same item.")] = None,
    infer: InferUrl = None,
) -> None:
    """Push one item of input to a live."""
    body: dict[str, Any] = {"kind": kind, "boundary": boundary}
    if kind == "config":
        try:
            body["config"] = json.loads(text)
        except ValueError as error:
            raise DhschedError(f"the configuration is not JSON: {error}") from None
    else:
        body["text"] = text
    if request_id:
        body["request_id"] = request_id
    typer.echo(json.dumps(asyncio.run(_push(infer_url(infer), live_id, body))))


def interrupt(
    live_id: str,
    text: Annotated[str, typer.Argument(help="What to go on with; nothing by default.")] = "",
    request_id: Annotated[str | None, typer.Option(help="The same id again is the same item.")] = None,
    infer: InferUrl = None,
) -> None:
    """Drop what a live has not consumed yet, and stop what it is saying."""
    push(live_id, text, kind="interrupt", boundary=False, request_id=request_id, infer=infer)


def watch(live_id: str, infer: InferUrl = None) -> None:
    """Print what happens to a live, one JSON object per line, until it ends."""

    async def print_all() -> None:
        async for event, data in watched(infer_url(infer), live_id):
            typer.echo(json.dumps({"event": event, **data}))

    asyncio.run(print_all())


def infer_url(given: str | None) -> str:
    return (given or os.environ.get(INFER) or INFER_DEFAULT).rstrip("/")


async def _push(url: str, live_id: str, body: dict[str, Any]) -> Any:
    import aiohttp  # Late, as in all verbs: it takes longer to load than most of them to run.

    try:
        async with (
            session(url, PUSH_S) as http,
            http.post(f"{url}/v1/lives/{live_id}/text", json=body, headers=await access(http, url)) as response,
        ):
            return await answered(response)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise unreachable(url, error) from error


async def watched(url: str, live_id: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """A live's events as they come."""
    import aiohttp

    try:
        async for event, data in server_sent(f"{url}/v1/lives/{live_id}/events"):
            yield event, data
    except aiohttp.ClientError as error:
        raise unreachable(url, error) from error


async def server_sent(url: str, query: dict[str, str] | None = None) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Server-sent events as they come: name and data."""
    async with (
        session(url, None) as http,
        http.get(
            url, params=query or {}, headers={"Accept": "text/event-stream", **await access(http, url)}
        ) as response,
    ):
        if response.status != 200:
            await answered(response)
        event = ""
        async for line in response.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                yield event, json.loads(value)


def session(url: str, total_s: float | None) -> aiohttp.ClientSession:
    import aiohttp

    tls = client_tls(os.environ.get(TLS_CA, "")) if url.startswith("https:") else True
    timeout = aiohttp.ClientTimeout(total=total_s)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=tls))


async def access(http: aiohttp.ClientSession, url: str) -> dict[str, str]:
    """The headers that say who we are at this server, and for which tenant."""
    tenant = os.environ.get(TENANT)
    server = origin(url)
    return {**await Minter(http, server, find_key(server)).headers(), **({"X-Tenant": tenant} if tenant else {})}


async def answered(response: aiohttp.ClientResponse) -> Any:
    body = await response.json(content_type=None)
    if response.status >= 400:
        raise DhschedError(f"{body.get('detail', 'refused')} ({body.get('code', response.status)})")
    return body


def unreachable(url: str, error: Exception) -> DhschedError:
    why = str(error) or type(error).__name__
    return DhschedError(f"no Infer-Controller answers at {url} ({why}): start one, or give --infer URL")
