"""`dhsched digital-id ...`: list, show, put and remove DigitalIDs and the Pools that can run them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.errors import BadValue

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Name of the DigitalID.")]
COLUMNS = ("name", "pools", "required_labels", "preferred_labels")


@app.command()
def ls(json: Json = False, url: Url = URL) -> None:
    """List all DigitalIDs."""
    document = Server(url).call("GET", "digital-ids")
    show(document, json, COLUMNS, [flat(each) for each in document["digital_ids"]])


@app.command()
def get(name: Name, json: Json = False, url: Url = URL) -> None:
    """Show one DigitalID."""
    document = Server(url).call("GET", "digital-ids", name)
    show(document if json else flat(document), json)


@app.command()
def put(
    name: Name,
    pool: Annotated[list[str], typer.Option(help="Pool, or pool:tier; tier 0 is preferred. May be repeated.")],
    require: Annotated[list[str] | None, typer.Option(help="Label that a Pool must have. May be repeated.")] = None,
    prefer: Annotated[list[str] | None, typer.Option(help="Label that a Worker should have. May be repeated.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Create or replace a DigitalID."""
    body: dict[str, Any] = {"pools": [parse_pool(each) for each in pool]}
    body |= {"required_labels": require or [], "preferred_labels": prefer or []}
    document = Server(url).call("PUT", "digital-ids", name, body=body)
    show(document if json else flat(document), json)


@app.command()
def rm(
    name: Name,
    force: Annotated[bool, typer.Option(help="Remove it even if lives show it.")] = False,
    url: Url = URL,
) -> None:
    """Remove a DigitalID that no live shows."""
    Server(url).call("DELETE", "digital-ids", name, query={"force": "1" if force else None})


def parse_pool(given: str) -> dict[str, Any]:
    name, colon, tier = given.partition(":")
    if colon and not tier.isdigit():
        raise BadValue(f"--pool {given!r} must be the name of a Pool, or a Pool and its tier, like gpu:1")
    return {"pool": name, "tier": int(tier or 0)}


def flat(document: dict[str, Any]) -> dict[str, Any]:
    config = document["config"]
    pools = ", ".join(f"{entry['pool']}:{entry['tier']}" for entry in config["pools"])
    return {"name": document["name"], **config, "pools": pools}
