"""`dhsched live push`, `interrupt` and `watch`: the input of a live, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from typing import Annotated, Any

import typer

from dhsched import addresses
from dhsched.cli.server import INFER_CONTROLLER, Server
from dhsched.errors import DhschedError

INFER = "DHSCHED_INFER"
INFER_DEFAULT = ",".join(addresses.INFER)
PUSH_S = 10.0

InferUrl = Annotated[
    str | None, typer.Option("--infer", metavar="URL,...", help=f"Infer-Controllers ({INFER}); {INFER_DEFAULT}.")
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
    body["request_id"] = request_id or secrets.token_hex(16)  # So that another controller may be asked once more.
    typer.echo(json.dumps(infer_at(infer).call("POST", "lives", live_id, "text", body=body, twice=True)))


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
        async for event in infer_at(infer).events("lives", live_id, "events"):
            typer.echo(json.dumps({"event": event.name, **event.data}))
            if event.name == "ended":
                return

    asyncio.run(print_all())


def infer_at(given: str | None) -> Server:
    return Server(given or os.environ.get(INFER) or INFER_DEFAULT, role=INFER_CONTROLLER, deadline_s=PUSH_S)
