"""`dhsched run ROLE`: the processes. Each serves until SIGTERM or Ctrl-C; a second one exits at once.

A flag wins over the environment, which wins over the file that --config names, which wins over the default; `dhsched
config ROLE` shows what that comes to.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dhsched.errors import BadSetting

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
TlsCa = Annotated[str | None, typer.Option(help="The servers' authority, PEM (DHSCHED_TLS_CA).", metavar="FILE")]
Cell = Annotated[str | None, typer.Option(help="The cell (DHSCHED_CELL); default main.")]
AllowEviction = Annotated[
    bool | None,
    typer.Option("--allow-eviction", help="Start on a store that may delete lives (DHSCHED_ALLOW_EVICTION)."),
]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error (DHSCHED_LOG_LEVEL).")]
LogJson = Annotated[bool | None, typer.Option("--log-json", help="Logs as JSON lines (DHSCHED_LOG_JSON).")]


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
    from dhsched.settings import DispatchSettings

    run_role(DispatchSettings, locals(), run_dispatch)


@app.command()
def infer(
    store: StoreUrl = None,
    cell: Cell = None,
    allow_eviction: AllowEviction = None,
    host: Annotated[str | None, typer.Option(help="Where to listen (DHSCHED_INFER_HOST); 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port (DHSCHED_INFER_PORT); 7401, and 0 is any.")] = None,
    name: Annotated[str | None, typer.Option(help="The controller's id (DHSCHED_INFER_NAME); made up.")] = None,
    advertise: Annotated[
        str | None, typer.Option(help="URL at which Workers reach it (DHSCHED_INFER_ADVERTISE).")
    ] = None,
    room: Annotated[
        str | None, typer.Option(metavar="URL", help="The room at which Workers publish (DHSCHED_INFER_ROOM).")
    ] = None,
    credit: Annotated[int | None, typer.Option(help="Unacked items per live (DHSCHED_INFER_CREDIT); 8.")] = None,
    access: Access = None,
    insecure: Insecure = None,
    allowed_origins: AllowedOrigins = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
) -> None:
    """An Infer-Controller: input in, fenced input out. Any number of them share one store."""
    from dhsched.infer.app import run_infer
    from dhsched.infer.settings import InferSettings

    run_role(InferSettings, locals(), run_infer)


@app.command()
def worker(
    pool: Annotated[str | None, typer.Option(help="The Pool it belongs to (DHSCHED_WORKER_POOL).")] = None,
    capacity: Annotated[int | None, typer.Option(help="Lives at once (DHSCHED_WORKER_CAPACITY).")] = None,
    runtime: Annotated[str, typer.Option(help="echo, null, avatar, or package.module:function.")] = "",
    exec_: Annotated[str, typer.Option("--exec", metavar="CMD", help="A command, run once per live.")] = "",
    dispatch: Annotated[str | None, typer.Option(metavar="URL,...", help="Dispatch (DHSCHED_URL).")] = None,
    name: Annotated[str | None, typer.Option(help="The machine's name; the host name.")] = None,
    device: Annotated[str | None, typer.Option(help="What is locked against a second Worker; the name.")] = None,
    labels: Annotated[str | None, typer.Option(help="Separated by commas; they rank it.")] = None,
    key_file: Annotated[
        str | None, typer.Option(help="A file with an API key of role worker; or set DHSCHED_WORKER_KEY.")
    ] = None,
    tls_ca: TlsCa = None,
    drain_s: Annotated[float | None, typer.Option(help="How long SIGTERM waits for its lives to move; 600.")] = None,
    teardown_s: Annotated[float | None, typer.Option(help="For a runtime to stop before it is cancelled; 10.")] = None,
    blocked_max_s: Annotated[
        float | None, typer.Option(help="How long a blocked event loop is spoken for; 10.")
    ] = None,
    locks: Annotated[Path | None, typer.Option(help="Where device locks lie.")] = None,
    exec_env: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Variables for children of --exec; HF_* names several.")
    ] = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
) -> None:
    """A Worker: runs lives. SIGTERM drains it; a second one exits at once."""
    given = {**locals(), "lock_folder": locks}
    from dhsched.worker.exec import Exec
    from dhsched.worker.main import run_here
    from dhsched.worker.runtimes import load_runtime
    from dhsched.worker.settings import WorkerSettings

    if bool(runtime) == bool(exec_):
        raise BadSetting("give either --runtime or --exec: one of them runs the lives")
    settings = settings_and_logging(WorkerSettings, given)
    run_here(settings, Exec(exec_) if exec_ else load_runtime(runtime))


@app.command()
def room(
    dispatch: Annotated[
        str | None, typer.Option(metavar="URL,...", help="Who may publish is asked here (DHSCHED_ROOM_DISPATCH).")
    ] = None,
    infer: Annotated[
        str | None, typer.Option(metavar="URL,...", help="Where viewers' text goes (DHSCHED_ROOM_INFER).")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Where to listen (DHSCHED_ROOM_HOST); 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port (DHSCHED_ROOM_PORT); 7402, and 0 is any.")] = None,
    name: Annotated[str | None, typer.Option(help="The room's id (DHSCHED_ROOM_NAME); made up.")] = None,
    addresses: Annotated[
        str | None, typer.Option(metavar="IP,...", help="Addresses for media (DHSCHED_ROOM_ADDRESSES); the host's.")
    ] = None,
    text: Annotated[
        bool | None,
        typer.Option("--text/--no-text", help="Viewers may type (DHSCHED_ROOM_TEXT); on loopback they may."),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Listen elsewhere than on loopback; viewers have no keys (DHSCHED_INSECURE)."),
    ] = None,
    allowed_origins: AllowedOrigins = None,
    key_file: Annotated[
        str | None, typer.Option(help="A file with an API key of role room; or set DHSCHED_ROOM_KEY.")
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
) -> None:
    """A room: viewers watch lives here while Workers come and go. Needs the extra `avatar`."""
    from dhsched.room.settings import RoomSettings

    try:
        from dhsched.room.app import run_room  # Late: it needs the extra.
    except ImportError as error:
        raise BadSetting(f"a room needs the extra: pip install 'dhsched[avatar]' ({error})") from error
    run_role(RoomSettings, locals(), run_room)


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


def run_role(kind: type[Any], given: Mapping[str, Any], run: Callable[..., Coroutine[Any, Any, None]]) -> None:
    """Run a role with the settings that these flags and the environment come to. Prints where the role listens."""
    from dhsched.web import run_service

    settings = settings_and_logging(kind, given)
    run_service(lambda stop: run(settings, stop, say=lambda url: typer.echo(f"{kind.ROLE} listens on {url}")))


def settings_and_logging(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """Return the settings of a role; what is logged from now on is as they say."""
    from dhsched.settings import settings_from
    from dhsched.web.logs import configure_logging

    settings = settings_from(kind, given)
    configure_logging(level=settings.log_level, json=settings.log_json)
    return settings


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
