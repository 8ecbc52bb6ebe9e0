"""What the verbs that talk to a server share: its address, `--json`, pages.

Exit codes: 0 done; 1 refused or not reachable, with one sentence on standard error that ends with the problem's code;
2 the command line itself is wrong.
"""

from __future__ import annotations

import json as json_
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from dhsched.cli.server import DEFAULT_URL, Server
from dhsched.cli.tables import readable, table, text
from dhsched.errors import BadValue

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="DHSCHED_URL",
        metavar="URL,...",
        help="The Dispatch replicas, or what is in front of them; the next is asked when one does not answer.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The server's answer as JSON.")]
URL = DEFAULT_URL
PAGES_MAX = 10_000


def client(url: str) -> Server:
    return Server(url)


def show(
    document: Any,
    as_json: bool,
    columns: Sequence[str] = (),
    rows: Sequence[Mapping[str, Any]] = (),
    *,
    least: Sequence[str] | None = None,
    cut: str = "",
) -> None:
    """A document as JSON; else as a table of `columns`, or as names and values where there is one thing only."""
    if as_json:
        typer.echo(json_.dumps(document, indent=2))
    elif columns:
        table(columns, [[text(row.get(column)) for column in columns] for row in rows], least=least, cut=cut)
    else:
        table(("", ""), [[name, text(value)] for name, value in readable(document).items()])


def parse_object(given: str, what: str) -> dict[str, Any]:
    """A JSON object from the command line."""
    try:
        value = json_.loads(given)
    except ValueError as error:
        raise BadValue(f"{what} is not JSON ({error}); write it like '{{\"key\": 1}}'") from None
    if not isinstance(value, dict):
        raise BadValue(f"{what} must be a JSON object, like '{{\"key\": 1}}'")
    return value


def all_pages(url: str, path: str, member: str, query: Mapping[str, Any], limit: int) -> list[dict[str, Any]]:
    """Up to `limit` rows of a list, page after page."""
    rows: list[dict[str, Any]] = []
    after, server = None, client(url)
    for _ in range(PAGES_MAX):
        page = server.call("GET", path, query={**query, "after": after, "limit": min(1_000, limit - len(rows))})
        rows += page[member]
        after = page["next"]
        if after is None or len(rows) >= limit:
            break
    return rows
