"""`dhsched console`: a link to the web console that logs its reader in."""

from __future__ import annotations

from typing import Annotated

import typer

from dhsched.addresses import addresses
from dhsched.cli.context_file import key_at
from dhsched.cli.key import mint_token
from dhsched.cli.remote import DISPATCH_ROLE, URL, Url

TTL_S = 3_600  # Lifetime of the token in the link, at most: servers mint none that lasts longer.


def console(
    ttl: Annotated[int, typer.Option(min=60, max=TTL_S, help="Lifetime of the token, in seconds.")] = TTL_S,
    role: Annotated[
        str | None,
        typer.Option(help="Role of the token; only an admin's key may name another, like reader. [default: the key's]"),
    ] = None,
    url: Url = URL,
) -> None:
    """Print a link to the web console, with a token that lasts an hour at most.

    The token stands behind the # of the link, which a browser sends to no server. Whoever has the link may do what the
    token allows, until it expires."""
    address = addresses(DISPATCH_ROLE, url)[0]
    if not key_at(address):
        typer.echo(f"{address}/console")
        return
    token = mint_token(url, {"ttl_s": ttl, **({"role": role} if role else {})})["token"]
    typer.echo(f"{address}/console#token={token}")
