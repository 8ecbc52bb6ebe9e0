"""`dhsched context ...`: name the deployments that you call, and choose one (context_file.py)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dhsched.addresses import addresses
from dhsched.cli.context_file import Context, changing, path_of_contexts, read_contexts, updated
from dhsched.cli.remote import Json, show
from dhsched.errors import BadValue

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Name of the context.")]
COLUMNS = ("name", "current", "url", "infer", "key", "tenant", "ca", "room_url")


@app.command()
def ls(json: Json = False) -> None:
    """List the contexts. A key is not shown, only whether there is one."""
    contexts = read_contexts()
    rows = [{"name": name, "current": name == contexts.current, **shown(each)} for name, each in contexts.named.items()]
    show({"contexts": rows}, json, COLUMNS, rows, least=("room_url", "ca", "tenant", "infer", "key"))


@app.command()
def use(name: Name) -> None:
    """Use this context in every call that names no other."""
    with changing() as contexts:
        contexts.get(name)
        contexts.current = name


@app.command("set")
def set_(
    name: Name,
    url: Annotated[str | None, typer.Option(metavar="URL,...", help="Addresses of the Dispatch replicas.")] = None,
    infer: Annotated[str | None, typer.Option(metavar="URL,...", help="Addresses of the Infer-Controllers.")] = None,
    room_url: Annotated[str | None, typer.Option(metavar="URL", help="Address of the room.")] = None,
    key: Annotated[
        str | None, typer.Option(help="API key, kept in the file of contexts; - reads it from standard input.")
    ] = None,
    key_file: Annotated[str | None, typer.Option(metavar="FILE", help="File that contains the API key.")] = None,
    ca: Annotated[str | None, typer.Option(metavar="FILE", help="PEM file with the servers' authority.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant, for an admin's key.")] = None,
    json: Json = False,
) -> None:
    """Create a context, or change the values that are given. An empty value removes one."""
    if not name:
        raise BadValue("a context needs a name")
    for role, given in (("Dispatch", url), ("Infer-Controller", infer), ("room", room_url)):
        if given:
            addresses(role, given)
    key = sys.stdin.readline().strip() if key == "-" else key
    values = {"url": url, "infer": infer, "room_url": room_url, "key": key, "tenant": tenant}
    values |= {"key_file": whole_path(key_file, "--key-file"), "ca": whole_path(ca, "--ca")}
    with changing() as contexts:
        given_values = {field: value for field, value in values.items() if value is not None}
        made = updated(contexts.named.get(name, Context()), given_values)
        if not made.url:
            raise BadValue(f"context {name} has no address of Dispatch; give --url")
        contexts.named[name] = made
        current = contexts.current == name
    show({"name": name, "current": current, **shown(made)}, json)


@app.command()
def rm(name: Name) -> None:
    """Remove a context, and its key if the file of contexts has it."""
    with changing() as contexts:
        contexts.get(name)
        del contexts.named[name]
        contexts.current = "" if contexts.current == name else contexts.current


def shown(context: Context) -> dict[str, Any]:
    """Return the values of a context without its key."""
    key = f"in {path_of_contexts()}" if context.key else context.key_file
    return {"url": context.url, "infer": context.infer, "room_url": context.room_url, "key": key} | {
        "ca": context.ca,
        "tenant": context.tenant,
    }


def whole_path(given: str | None, option: str) -> str | None:
    """Return the file's absolute path: a verb may be called in any folder."""
    if not given:
        return given
    if not (path := Path(given).expanduser().absolute()).is_file():
        raise BadValue(f"{option} {given}: there is no such file")
    return str(path)
