"""`dhsched run ROLE`: the processes. Each serves until SIGTERM or Ctrl-C; a second one exits at once.

A flag wins over the environment, which wins over the file that --config names, which wins over the default; `dhsched
config ROLE` shows what that comes to.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Run a process of dhsched in the foreground.", no_args_is_help=True)

STORE_URL = "store-url"  # The file beside the data that has the URL of a store with a port, and so its password.
StoreUrl = Annotated[
    str | None, typer.Option(help="URL of the store (DHSCHED_STORE); without one, a store of its own.", metavar="URL")
]
Config = Annotated[Path | None, typer.Option(help="A TOML file with settings (DHSCHED_CONFIG).", metavar="FILE")]
Access = Annotated[str | None, typer.Option(help="keys or open: whether callers need a token (DHSCHED_ACCESS); keys.")]
Insecure = Annotated[
    bool | None, typer.Option("--insecure", help="Open to everybody, and not on loopback only (DHSCHED_INSECURE).")
]
AllowedOrigins = Annotated[
    str | None,
    typer.Option(metavar="ORIGIN,...", help="Other origins whose pages may call it (DHSCHED_ALLOWED_ORIGINS)."),
]
TlsCert = Annotated[str | None, typer.Option(help="Certificate chain, PEM (DHSCHED_TLS_CERT).", metavar="FILE")]
TlsKey = Annotated[str | None, typer.Option(help="The certificate's key, PEM (DHSCHED_TLS_KEY).", metavar="FILE")]
Cell = Annotated[str | None, typer.Option(help="The cell (DHSCHED_CELL); default main.")]
AllowEviction = Annotated[
    bool | None,
    typer.Option("--allow-eviction", help="Start on a store that may delete lives (DHSCHED_ALLOW_EVICTION)."),
]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error (DHSCHED_LOG_LEVEL).")]
LogJson = Annotated[bool | None, typer.Option("--log-json", help="Logs as JSON lines (DHSCHED_LOG_JSON).")]


@app.callback()
def family() -> None:
    """A family even while it has one verb: without this, typer would drop the verb's name."""


@app.command()
def dispatch(
    store: StoreUrl = None,
    cell: Cell = None,
    allow_eviction: AllowEviction = None,
    host: Annotated[str | None, typer.Option(help="Where to listen (DHSCHED_DISPATCH_HOST); 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port (DHSCHED_DISPATCH_PORT); 7400, and 0 is any.")] = None,
    name: Annotated[str | None, typer.Option(help="The replica's id (DHSCHED_DISPATCH_NAME); made up.")] = None,
    policy: Annotated[str | None, typer.Option(help="Placement policy (DHSCHED_DISPATCH_POLICY).")] = None,
    access: Access = None,
    insecure: Insecure = None,
    allowed_origins: AllowedOrigins = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
) -> None:
    """A dispatch replica: places lives and serves the API. Any number of them share one store."""
    from dhsched.dispatch.app import run_dispatch  # Late, so that other verbs do not load it.
    from dhsched.settings import DispatchSettings, settings_from
    from dhsched.web import run_service
    from dhsched.web.logs import configure_logging

    settings = settings_from(DispatchSettings, locals())
    configure_logging(level=settings.log_level, json=settings.log_json)
    run_service(lambda stop: run_dispatch(settings, stop, lambda url: typer.echo(f"dispatch listens on {url}")))


@app.command()
def store(
    data: Annotated[
        Path | None, typer.Option(help="Directory to keep the data in; without one it is forgotten.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Also listen on this port of 127.0.0.1; 0 is none.")] = 0,
) -> None:
    """A store server for by-hand use, on a private socket. Prints what to give as --store or DHSCHED_STORE.

    With a port it has a password, which is in the file whose URL it prints: kept with the data, else made anew.
    """
    from dhsched.web import run_service

    run_service(lambda stop: _run_store(data, port, stop))


async def _run_store(data: Path | None, port: int, stop: asyncio.Event) -> None:
    from dhsched.store.server.embedded import Embedded

    if not port:
        async with Embedded(data) as server:
            typer.echo(server.address.url())
            await stop.wait()
        return
    async with Embedded(data, port=port, password=kept_password(data) or secrets.token_hex(24)) as server:
        typer.echo(write_url(data or Path(server.address.path or "").parent, server.tcp_address.url()))
        await stop.wait()


def kept_password(data: Path | None) -> str | None:
    """The password of an earlier run on the same data, so that whoever was given it goes on."""
    from dhsched.store.link.address import parse_address

    file = data.absolute() / STORE_URL if data is not None else None
    return parse_address(file.as_uri()).password if file is not None and file.exists() else None


def write_url(folder: Path, url: str) -> str:
    """Write the store's URL into a file for this user alone; that file's own URL."""
    file = folder.absolute() / STORE_URL
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as out:
        out.write(url + "\n")
    return file.as_uri()
