"""`dhsched key ...`: API keys, the tokens that they mint, and the secrets that sign these.

With --store (or DHSCHED_STORE) a verb goes to the store itself, which is how the first admin key is made: who can reach
the store can do anything anyway. Without it, it goes to a Dispatch replica with the key that is found (DHSCHED_KEY).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar, get_args

import typer

from dhsched.access.callers import ANY, TENANT, Role
from dhsched.addresses import addresses
from dhsched.cli.remote import URL, Json, Server, Url, show
from dhsched.cli.tables import day
from dhsched.client.credentials import find_key
from dhsched.errors import BadValue, DhschedError

app = typer.Typer(help="API keys and tokens: create, list, revoke, mint, rotate.", no_args_is_help=True)

Store = Annotated[
    str | None,
    typer.Option(envvar="DHSCHED_STORE", metavar="URL", help="Go to the store itself: for the first admin key."),
]
Cell = Annotated[str, typer.Option(envvar="DHSCHED_CELL", help="The cell, with --store.")]
COLUMNS = ("key_id", "role", "tenant", "names", "pool", "created", "note")
ROLES = ", ".join(get_args(Role))
T = TypeVar("T")


@app.command()
def create(
    role: Annotated[str, typer.Option(help=f"One of {ROLES}.")],
    tenant: Annotated[str, typer.Option(help="Whose lives it is for.")] = TENANT,
    names: Annotated[str, typer.Option(help="Workers that it may register, like gpu-*.")] = ANY,
    pool: Annotated[str, typer.Option(help="The Pool that they may be of, or a pattern.")] = ANY,
    capacity_max: Annotated[int, typer.Option(min=0, help="How large they may be; 0 is any.")] = 0,
    rate: Annotated[float, typer.Option(min=0, help="Requests a second at one replica; 0 is the usual.")] = 0,
    note: Annotated[str, typer.Option(help="For people: what it is for.")] = "",
    json: Json = False,
    url: Url = URL,
    store: Store = None,
    cell: Cell = "main",
) -> None:
    """Make an API key and print it, this once."""
    body: dict[str, Any] = {"role": role, "tenant": tenant, "names": names, "pool": pool}
    body |= {"capacity_max": capacity_max, "rate_per_s": rate, "note": note}
    if store:
        made = at_store(store, cell, lambda ring: _create(ring, body))
    else:
        made = Server(url).call("POST", "keys", body=body)
    if json:
        show(made, True)
        return
    typer.echo(made["key"])
    typer.echo(f"key {made['record']['key_id']}: keep it now, it is not shown again", err=True)


@app.command()
def ls(json: Json = False, url: Url = URL, store: Store = None, cell: Cell = "main") -> None:
    """Every API key, without its secret."""
    found = at_store(store, cell, _list) if store else Server(url).call("GET", "keys")
    rows = [{**row, "created": day(row["created_at_ms"])} for row in found["keys"]]
    show(found, json, COLUMNS, rows)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `dhsched key ls` shows it.")],
    url: Url = URL,
    store: Store = None,
    cell: Cell = "main",
) -> None:
    """Revoke a key, and with it all tokens that it minted; within a second or two, everywhere."""
    if not store:
        Server(url).call("DELETE", "keys", key_id)
    elif not at_store(store, cell, lambda ring: ring.revoke(key_id)):
        raise DhschedError(f"key {key_id} does not exist; `dhsched key ls` lists those that do")


@app.command()
def mint(
    ttl: Annotated[int, typer.Option(min=1, max=3600, help="Seconds that it lasts.")] = 900,
    role: Annotated[str | None, typer.Option(help="Less than an admin's key may do.")] = None,
    tenant: Annotated[str | None, typer.Option(help="For this tenant; an admin's key only.")] = None,
    scope: Annotated[list[str] | None, typer.Option(help="Only this; may be repeated.")] = None,
    json: Json = False,
    url: Url = URL,
) -> None:
    """Print a short-lived token, for curl -H "Authorization: Bearer $(dhsched key mint)"."""
    key = next((key for each in addresses("Dispatch", url) if (key := find_key(each))), "")
    if not key:
        raise BadValue(f"there is no API key for {url}; set DHSCHED_KEY or DHSCHED_KEY_FILE")
    body: dict[str, Any] = {"ttl_s": ttl, "role": role, "tenant": tenant, "scopes": scope}
    body = {name: value for name, value in body.items() if value is not None}
    headers = {"Authorization": f"Bearer {key}"}
    made = Server(url, key="").call("POST", "tokens", body=body, headers=headers, twice=True)
    if json:
        show(made, True)
    else:
        typer.echo(made["token"])


@app.command()
def rotate(
    what: Annotated[str, typer.Option(help="access: what keys mint. boot: what Workers show.")] = "access",
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Make all that was signed so far void at once: the secret leaked.")
    ] = False,
    json: Json = False,
    url: Url = URL,
    store: Store = None,
    cell: Cell = "main",
) -> None:
    """Sign with a new secret from now on. The one before still verifies until the next rotation."""
    if what not in ("access", "boot"):
        raise BadValue(f"--what {what!r} must be access or boot")
    if store:
        done = at_store(store, cell, lambda ring: _rotate(ring, what, drop_old))
    else:
        done = Server(url).call("POST", "secrets", what, "rotate", body={"drop_old": drop_old})
    show(done, json)


# -- at the store itself


def at_store(url: str, cell: str, call: Callable[[Any], Awaitable[T]]) -> T:
    """Call with the cell's key ring, on a connection of its own."""

    async def run() -> T:
        from dhsched.access.ring import open_ring
        from dhsched.store.steps.redis import RedisStore

        async with await RedisStore.open(url, cell=cell) as store:
            return await call(await open_ring(store.link, store.keys))

    return asyncio.run(run())


async def _create(ring: Any, body: dict[str, Any]) -> dict[str, Any]:
    import msgspec

    from dhsched.client.models.keys import CreateKey
    from dhsched.dispatch.api.keys import key_out

    try:
        checked = msgspec.convert(body, CreateKey)
    except msgspec.ValidationError as error:
        raise BadValue(f"the key cannot be made: {error}") from None
    text, record = await ring.create(**msgspec.structs.asdict(checked))
    return {"key": text, "record": msgspec.to_builtins(key_out(record))}


async def _list(ring: Any) -> dict[str, Any]:
    import msgspec

    from dhsched.dispatch.api.keys import key_out

    found = sorted(ring.api_keys.values(), key=lambda key: (key.created_at_ms, key.id))
    return {"keys": [msgspec.to_builtins(key_out(key)) for key in found]}


async def _rotate(ring: Any, what: str, drop_old: bool) -> dict[str, Any]:
    kid, dropped = await ring.rotate(what, drop_old=drop_old)
    return {"kind": what, "kid": kid, "dropped": dropped}
