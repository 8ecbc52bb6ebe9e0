"""`dhsched live logs`: the last log lines of a live's runtimes, over all its generations."""

from __future__ import annotations

import json as json_
import time
from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url
from dhsched.cli.tables import moment, one_line

FOLLOW_S = 0.5  # Time between two requests for new lines.
PAGE = 1_000


def logs(
    live_id: Annotated[str, typer.Argument(help="Id of the live.")],
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, max=PAGE, help="Most lines.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also print new lines, until the live ends.")] = False,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Print the last log lines of a live's runtimes, over all its generations; the latest last."""
    server = Server(url)
    document = server.call("GET", "lives", live_id, "logs", query={"limit": lines})
    if json and not follow:
        typer.echo(json_.dumps(document))
        return
    found = document["lines"]
    if found and len(found) < lines and found[0]["n"] > 1:
        typer.echo(f"{found[0]['n'] - 1} earlier lines are not kept", err=True)
    last = 0
    while True:
        for line in document["lines"]:
            typer.echo(json_.dumps(line) if json else shown(line))
            last = line["n"]
        if not follow or (document["ended"] and not document["lines"]):
            return
        time.sleep(FOLLOW_S)
        document = server.call("GET", "lives", live_id, "logs", query={"after": last, "limit": PAGE})


def shown(line: dict[str, Any]) -> str:
    """Return a line as it is printed: when, in which generation and where it was logged, then the line."""
    return one_line(
        f"{moment(line['at_ms'])}  {line['worker']}  epoch {line['epoch']}  {line['source']:7}  {line['text']}"
    )
