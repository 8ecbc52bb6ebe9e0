"""`dhsched dead-letters LIVE`: input that was given up; push it again, or forget it."""

from __future__ import annotations

from typing import Annotated

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import one_line
from dhsched.errors import BadValue


def dead_letters(
    live_id: Annotated[str, typer.Argument(help="The live.")],
    push: Annotated[str | None, typer.Option("--push", metavar="ID", help="Push this one once more.")] = None,
    drop: Annotated[str | None, typer.Option("--drop", metavar="ID", help="Forget this one.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Input of a live that was dropped because generations died over it, the oldest first."""
    if push is not None and drop is not None:
        raise BadValue("--push and --drop were both given; give one, a letter at a time")
    server = Server(url)
    if push is not None:
        show(server.call("POST", "lives", live_id, "dead-letters", push, "push"), json)
        return
    if drop is not None:
        server.call("DELETE", "lives", live_id, "dead-letters", drop)
        show({"live_id": live_id, "dropped": drop}, json)
        return
    document = server.call("GET", "lives", live_id, "dead-letters")
    show(
        document,
        json,
        ("id", "kind", "boundary", "text"),
        document["items"],
        least=("boundary", "kind", "text"),
        cut="text",
    )
    if not json:
        for letter in document["items"]:
            if letter.get("reason"):
                typer.echo(one_line(f"{letter['id']} was given up after: {letter['reason']}"))
