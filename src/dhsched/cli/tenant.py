"""`dhsched tenant ...`: list, show, set and remove the limits of tenants; show what a tenant uses."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dhsched.cli.remote import URL, Json, Server, Url, show

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Name of the tenant; '*' is every tenant without a record.")]
COLUMNS = ("name", "lives_max", "streams_max", "waiting_max", "rate_per_s", "pending_bytes_max")


@app.command()
def ls(json: Json = False, url: Url = URL) -> None:
    """List all tenants that have limits of their own."""
    document = Server(url).call("GET", "tenants")
    show(document, json, COLUMNS, [flat(each) for each in document["tenants"]])


@app.command()
def get(name: Name, json: Json = False, url: Url = URL) -> None:
    """Show the limits of one tenant."""
    document = Server(url).call("GET", "tenants", name)
    show(document if json else flat(document), json)


@app.command("set")
def set_(
    name: Name,
    lives: Annotated[int, typer.Option(min=0, help="Lives that have not ended; 0 is no limit.")] = 0,
    streams: Annotated[int, typer.Option(min=0, help="Open streams and watchers; 0 is no limit.")] = 0,
    waiting: Annotated[int, typer.Option(min=0, help="Creates that wait for a free slot; 0 is no limit.")] = 0,
    rate: Annotated[float, typer.Option(min=0, help="Requests a second, of all its keys; 0 is no limit.")] = 0,
    pending_bytes: Annotated[
        int, typer.Option(min=0, help="Bytes of input that is not acked, of all its lives; 0 is no limit.")
    ] = 0,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Set all limits of a tenant; a limit that is left out is none."""
    body = {
        "lives_max": lives,
        "streams_max": streams,
        "waiting_max": waiting,
        "rate_per_s": rate,
        "pending_bytes_max": pending_bytes,
    }
    document = Server(url).call("PUT", "tenants", name, body=body)
    show(document if json else flat(document), json)


@app.command()
def rm(name: Name, url: Url = URL) -> None:
    """Remove the limits of a tenant: those of '*' apply to it."""
    Server(url).call("DELETE", "tenants", name)


@app.command()
def usage(name: Annotated[str, typer.Argument(help="Name of the tenant.")], json: Json = False, url: Url = URL) -> None:
    """Show what a tenant uses: lives and pending input now, live-seconds and items in total, and its limits."""
    document = Server(url).call("GET", "tenants", name, "usage")
    limits = {} if json else document.pop("limits")
    show({**document, **limits}, json)


def flat(document: dict[str, Any]) -> dict[str, Any]:
    return {"name": document["name"], **document["config"]}
