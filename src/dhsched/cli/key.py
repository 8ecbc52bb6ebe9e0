"""`dhsched key ...`: API keys, the tokens that they mint, and the secrets that sign the tokens.

With --store (or DHSCHED_STORE) a verb uses the store directly, which is how the first admin key is made: a user who can
reach the store can do anything anyway. Without --store, a verb calls a Dispatch replica with the key in DHSCHED_KEY,
DHSCHED_KEY_FILE, the context or this user's key file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, get_args

import typer

from dhsched.access.callers import ANY, TENANT, Role, worded
from dhsched.addresses import addresses
from dhsched.cli.context_file import key_at
from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import day
from dhsched.cli.which_cell import written_cell
from dhsched.errors import BadValue, DhschedError

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

Store = Annotated[
    str | None,
    typer.Option(
        envvar="DHSCHED_STORE",
        metavar="URL",
        help="Store to use directly instead of Dispatch, for the first admin key.",
    ),
]
Cell = Annotated[
    str | None,
    typer.Option(
        envvar="DHSCHED_CELL", help="Name of the cell, with --store. [default: main, or the first of DHSCHED_CELLS]"
    ),
]
COLUMNS = ("key_id", "role", "tenant", "names", "pool", "created", "note")
ROLES = ", ".join(get_args(Role))


@app.command()
def create(
    role: Annotated[str, typer.Option(help=f"Role: one of {ROLES}.")],
    tenant: Annotated[str, typer.Option(help="Tenant whose lives the key is for.")] = TENANT,
    names: Annotated[
        str | None,
        typer.Option(help="Pattern of Worker names that the key may register, like gpu-*. Required for role worker."),
    ] = None,
    pool: Annotated[str, typer.Option(help="Pool of these Workers, or a pattern.")] = ANY,
    capacity_max: Annotated[int, typer.Option(min=0, help="Largest capacity of these Workers; 0 is any.")] = 0,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of labels that these Workers may have. May be repeated. [default: none]"),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests per second at one replica; 0 is the setting key_rate_per_s.")
    ] = 0,
    note: Annotated[str, typer.Option(help="Note that `dhsched key ls` shows.")] = "",
    json: Json = False,
    url: Url = URL,
    store: Store = None,
    cell: Cell = None,
) -> None:
    """Create an API key and print it. It cannot be shown again."""
    body: dict[str, Any] = {
        "role": role,
        "tenant": tenant,
        "pool": pool,
        "labels": label or [],
        "capacity_max": capacity_max,
        "rate_per_s": rate,
        "note": note,
    }
    if names is not None:
        body["names"] = names
    made = (
        at_store(store, cell, lambda keys, ring: keys.create_key(ring, checked(body)))
        if store
        else Server(url).call("POST", "keys", body=body)
    )
    if json:
        show(made, True)
        return
    typer.echo(made["key"])
    typer.echo(f"key {made['record']['key_id']}: keep it now, it is not shown again", err=True)
    if role == "worker":
        typer.echo(f"it registers {workers_of(made['record'])}", err=True)


def workers_of(record: Mapping[str, Any]) -> str:
    """Return which Workers a key may register, as words of a sentence."""
    names, pool, capacity = record["names"], record["pool"], record["capacity_max"]
    named = "Workers of any name" if names == ANY else f"Workers named {names}"
    where = "any Pool" if pool == ANY else f"Pool {pool}"
    size = f"capacity {capacity} at most" if capacity else "any capacity"
    return f"{named}, of {where}, of {size}, with {worded(record['labels'])}"


@app.command()
def ls(json: Json = False, url: Url = URL, store: Store = None, cell: Cell = None) -> None:
    """List all API keys, without their secrets."""
    found = at_store(store, cell, lambda keys, ring: keys.list_keys(ring)) if store else Server(url).call("GET", "keys")
    show(found, json, COLUMNS, [{**row, "created": day(row["created_at_ms"])} for row in found["keys"]])


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, as `dhsched key ls` shows it.")],
    url: Url = URL,
    store: Store = None,
    cell: Cell = None,
) -> None:
    """Revoke a key and all tokens that it minted. Every replica refuses them within a second or two.

    Workers that registered with the key are ended, and their lives are placed elsewhere."""
    if not store:
        Server(url).call("DELETE", "keys", key_id)
    elif not at_store(store, cell, lambda _, ring: ring.revoke(key_id)):
        raise DhschedError(f"key {key_id} does not exist; `dhsched key ls` lists the keys that do")


@app.command()
def mint(
    ttl: Annotated[int, typer.Option(min=1, max=3600, help="Lifetime of the token, in seconds.")] = 900,
    role: Annotated[
        str | None, typer.Option(help="Role of the token; only an admin's key may name another. [default: the key's]")
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="Tenant of the token; only an admin's key may name another. [default: the key's]"),
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="Scope of the token. May be repeated. [default: all of its role]")
    ] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Print a short-lived token, for curl -H "Authorization: Bearer $(dhsched key mint)"."""
    body: dict[str, Any] = {"ttl_s": ttl, "role": role, "tenant": tenant, "scopes": scope}
    made = mint_token(url, {name: value for name, value in body.items() if value is not None})
    if json:
        show(made, True)
    else:
        typer.echo(made["token"])


@app.command()
def rotate(
    what: Annotated[
        str,
        typer.Option(help="Secret to replace: of API keys' tokens (access), Workers' (boot) or viewers' (viewer)."),
    ] = "access",
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Refuse all tokens signed so far, at once, because the secret leaked.")
    ] = False,
    json: Json = False,
    url: Url = URL,
    store: Store = None,
    cell: Cell = None,
) -> None:
    """Sign new tokens with a new secret. Tokens of the previous secret stay valid until the next rotation."""
    if what not in ("access", "boot", "viewer"):
        raise BadValue(f"--what is {what!r}; it must be access, boot or viewer")
    if store:
        show(at_store(store, cell, lambda keys, ring: keys.rotate_secret(ring, what, drop_old=drop_old)), json)
    else:
        show(Server(url).call("POST", "secrets", what, "rotate", body={"drop_old": drop_old}), json)


def mint_token(url: str, body: dict[str, Any]) -> Any:
    """Return the document of a token that the key for `url` mints; raise BadValue if there is no key."""
    key = next((key for each in addresses("Dispatch", url) if (key := key_at(each))), "")
    if not key:
        raise BadValue(
            f"there is no API key for {url}; set DHSCHED_KEY or DHSCHED_KEY_FILE, or use a context that has one"
        )
    headers = {"Authorization": f"Bearer {key}"}
    return Server(url, key="").call("POST", "tokens", body=body, headers=headers, twice=True)


# -- at the store itself


def at_store(url: str, cell: str | None, call: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    """Open the store, call `call` with the functions of the API (dispatch/api/keys.py) and the cell's key ring, and
    return its result as a document."""

    async def run() -> Any:
        from msgspec import to_builtins

        from dhsched.access.ring import open_ring
        from dhsched.dispatch.api import keys
        from dhsched.store.steps.redis import RedisStore

        at, name = written_cell(url, cell)
        async with await RedisStore.open(at, cell=name) as store:
            return to_builtins(await call(keys, await open_ring(store.link, store.keys)))

    return asyncio.run(run())


def checked(body: dict[str, Any]) -> Any:
    """Return the request for a key that Dispatch would make of this body."""
    import msgspec

    from dhsched.client.models.keys import CreateKey

    try:
        return msgspec.convert(body, CreateKey)
    except msgspec.ValidationError as error:
        raise BadValue(f"the key cannot be made: {error}") from None
