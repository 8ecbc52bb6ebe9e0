"""`dhsched run ROLE`: run one process of a deployment until SIGTERM or Ctrl-C; a second signal exits at once.

A flag wins over the environment, which wins over the file that --config names, which wins over the default; `dhsched
config ROLE` shows the values and their sources.
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

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

STORE_URL = "store-url"  # Name of the file, beside the data, with the URL and so the password of a store with a port.
StoreUrl = Annotated[
    str | None,
    typer.Option(
        help="URL of the store; without it, dispatch starts its own store and infer does not start. "
        "[env: DHSCHED_STORE]",
        metavar="URL",
    ),
]
Config = Annotated[Path | None, typer.Option(help="TOML file with settings. [env: DHSCHED_CONFIG]", metavar="FILE")]
Access = Annotated[
    str | None,
    typer.Option(help="Whether callers need a token: keys or open. [env: DHSCHED_ACCESS] [default: keys]"),
]
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure", help="Listen beyond loopback without TLS, or although access is open. [env: DHSCHED_INSECURE]"
    ),
]
AllowedOrigins = Annotated[
    str | None,
    typer.Option(metavar="ORIGIN,...", help="Other origins whose pages may call it. [env: DHSCHED_ALLOWED_ORIGINS]"),
]
TlsCert = Annotated[
    str | None, typer.Option(help="PEM file with the certificate chain. [env: DHSCHED_TLS_CERT]", metavar="FILE")
]
TlsKey = Annotated[
    str | None, typer.Option(help="PEM file with the certificate's key. [env: DHSCHED_TLS_KEY]", metavar="FILE")
]
TlsCa = Annotated[
    str | None, typer.Option(help="PEM file with the servers' authority. [env: DHSCHED_TLS_CA]", metavar="FILE")
]
Cell = Annotated[str | None, typer.Option(help="Name of the only cell. [env: DHSCHED_CELL] [default: main]")]
Cells = Annotated[
    str | None,
    typer.Option(metavar="'NAME[=URL] ...'", help="The cells of a deployment that has several. [env: DHSCHED_CELLS]"),
]
AllowEviction = Annotated[
    bool | None,
    typer.Option("--allow-eviction", help="Start on a store that may delete lives. [env: DHSCHED_ALLOW_EVICTION]"),
]
LogLevel = Annotated[
    str | None,
    typer.Option(help="Log level: debug, info, warning or error. [env: DHSCHED_LOG_LEVEL] [default: info]"),
]
LogJson = Annotated[bool | None, typer.Option("--log-json", help="Log as JSON lines. [env: DHSCHED_LOG_JSON]")]


@app.command()
def dispatch(
    store: StoreUrl = None,
    cell: Cell = None,
    cells: Cells = None,
    allow_eviction: AllowEviction = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. [env: DHSCHED_DISPATCH_HOST] [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 is any. [env: DHSCHED_DISPATCH_PORT] [default: 7400]")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Id of the replica. [env: DHSCHED_DISPATCH_NAME] [default: random]")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Placement policy. [env: DHSCHED_DISPATCH_POLICY] [default: emptiest]")
    ] = None,
    access: Access = None,
    insecure: Insecure = None,
    allowed_origins: AllowedOrigins = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
) -> None:
    """Run a Dispatch replica, which places lives and serves the API. Any number of replicas share one store."""
    from dhsched.dispatch.app import run_dispatch  # Late, so that other verbs do not load it.
    from dhsched.settings import DispatchSettings

    run_role(DispatchSettings, locals(), run_dispatch)


@app.command()
def infer(
    store: StoreUrl = None,
    cell: Cell = None,
    cells: Cells = None,
    allow_eviction: AllowEviction = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. [env: DHSCHED_INFER_HOST] [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 is any. [env: DHSCHED_INFER_PORT] [default: 7401]")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Id of the controller. [env: DHSCHED_INFER_NAME] [default: random]")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            help="URL at which Workers reach it. [env: DHSCHED_INFER_ADVERTISE] [default: from host and port]"
        ),
    ] = None,
    room: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of the room at which Workers publish. [env: DHSCHED_INFER_ROOM]"),
    ] = None,
    credit: Annotated[
        int | None, typer.Option(help="Unacked items per live. [env: DHSCHED_INFER_CREDIT] [default: 8]")
    ] = None,
    access: Access = None,
    insecure: Insecure = None,
    allowed_origins: AllowedOrigins = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
) -> None:
    """Run an Infer-Controller, which takes input and sends it to the live's Worker. Any number share one store."""
    from dhsched.infer.app import run_infer
    from dhsched.infer.settings import InferSettings

    run_role(InferSettings, locals(), run_infer)


@app.command()
def worker(
    pool: Annotated[str | None, typer.Option(help="Pool of the Worker; required. [env: DHSCHED_WORKER_POOL]")] = None,
    capacity: Annotated[
        int | None, typer.Option(help="Most lives at once; required. [env: DHSCHED_WORKER_CAPACITY]")
    ] = None,
    runtime: Annotated[
        str, typer.Option(help="Runtime of the lives: echo, null, avatar, or package.module:function.")
    ] = "",
    exec_: Annotated[
        str, typer.Option("--exec", metavar="CMD", help="Command that runs once per live, instead of --runtime.")
    ] = "",
    setup: Annotated[
        str, typer.Option(help="Function package.module:function that runs once, before the Worker registers.")
    ] = "",
    dispatch: Annotated[
        str | None, typer.Option(metavar="URL,...", help="Addresses of the Dispatch replicas. [env: DHSCHED_URL]")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the Worker. [env: DHSCHED_WORKER_NAME] [default: the host name]")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Devices of the Worker, separated by commas; at most one Worker per device. "
            "[env: DHSCHED_WORKER_DEVICE] [default: --name]"
        ),
    ] = None,
    cell: Annotated[
        str | None,
        typer.Option(
            help="Cell to register in, where there are several. "
            "[env: DHSCHED_WORKER_CELL] [default: the last one, or where least is free]"
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labels by which DigitalIDs prefer Workers, separated by commas. [env: DHSCHED_WORKER_LABELS]"
        ),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            help="File with an API key of role worker. "
            "[env: DHSCHED_WORKER_KEY_FILE, or DHSCHED_WORKER_KEY for the key itself]"
        ),
    ] = None,
    tls_ca: TlsCa = None,
    drain_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds that SIGTERM waits for the lives to move. [env: DHSCHED_WORKER_DRAIN_S] [default: 600]"
        ),
    ] = None,
    teardown_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds for a runtime to stop; then it is cancelled. [env: DHSCHED_WORKER_TEARDOWN_S] [default: 10]"
        ),
    ] = None,
    blocked_max_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds that the event loop may be blocked; then the Worker is lost. "
            "[env: DHSCHED_WORKER_BLOCKED_MAX_S] [default: 10]"
        ),
    ] = None,
    locks: Annotated[
        Path | None, typer.Option(help="Folder of the device locks. [env: DHSCHED_WORKER_LOCK_FOLDER]")
    ] = None,
    process_per_live: Annotated[
        bool | None,
        typer.Option(
            "--process-per-live/--one-process",
            help="Run each live's runtime in a process of its own. "
            "[env: DHSCHED_WORKER_PROCESS_PER_LIVE] [default: one process]",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Port for /metrics, /healthz and /readyz on loopback; 0 is none. "
            "[env: DHSCHED_WORKER_METRICS_PORT] [default: 0]"
        ),
    ] = None,
    exec_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Variables that --exec children get as well, like HF_*. [env: DHSCHED_WORKER_EXEC_ENV]",
        ),
    ] = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
) -> None:
    """Run a Worker, which runs lives. SIGTERM drains it; a second SIGTERM exits at once."""
    given = {**locals(), "lock_folder": locks}
    from dhsched.worker.exec import Exec
    from dhsched.worker.main import run_here
    from dhsched.worker.runtimes import load_function, load_runtime
    from dhsched.worker.settings import WorkerSettings

    if bool(runtime) == bool(exec_):
        raise BadSetting("exactly one of --runtime and --exec must be given: it runs the lives")
    settings = settings_and_logging(WorkerSettings, given)
    run_here(
        settings,
        Exec(exec_) if exec_ else load_runtime(runtime),
        load_function("setup", setup) if setup else None,
    )


@app.command()
def room(
    dispatch: Annotated[
        str | None,
        typer.Option(
            metavar="URL,...",
            help="Addresses of the Dispatch replicas, which know who may publish. [env: DHSCHED_ROOM_DISPATCH]",
        ),
    ] = None,
    infer: Annotated[
        str | None,
        typer.Option(
            metavar="URL,...", help="Addresses of the Infer-Controllers, for viewers' text. [env: DHSCHED_ROOM_INFER]"
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. [env: DHSCHED_ROOM_HOST] [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 is any. [env: DHSCHED_ROOM_PORT] [default: 7402]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Id of the room. [env: DHSCHED_ROOM_NAME] [default: random]")] = None,
    addresses: Annotated[
        str | None,
        typer.Option(
            metavar="IP,...", help="IP addresses for media. [env: DHSCHED_ROOM_ADDRESSES] [default: of --host]"
        ),
    ] = None,
    text: Annotated[
        bool | None,
        typer.Option(
            "--text/--no-text",
            help="Let viewers send text, whose tokens may. [env: DHSCHED_ROOM_TEXT] [default: yes; with open "
            "access only on loopback]",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="Port for /metrics; 0 is none. [env: DHSCHED_ROOM_METRICS_PORT] [default: 7403]"),
    ] = None,
    trusted_proxies: Annotated[
        str | None,
        typer.Option(
            metavar="NETWORK,...",
            help="Proxies whose X-Forwarded-For names the viewer's address. [env: DHSCHED_ROOM_TRUSTED_PROXIES]",
        ),
    ] = None,
    frame_ancestors: Annotated[
        str | None,
        typer.Option(
            metavar="ORIGIN,...",
            help="Origins whose pages may embed the room's page. [env: DHSCHED_ROOM_FRAME_ANCESTORS]",
        ),
    ] = None,
    video: Annotated[
        str | None,
        typer.Option(help="Codec of the video: vp8 or h264. [env: DHSCHED_ROOM_VIDEO] [default: vp8]"),
    ] = None,
    ice_servers: Annotated[
        str | None,
        typer.Option(metavar="URL,...", help="STUN and TURN servers for viewers. [env: DHSCHED_ROOM_ICE_SERVERS]"),
    ] = None,
    own_ice_servers: Annotated[
        str | None,
        typer.Option(
            metavar="URL,...", help="STUN and TURN servers for the room itself. [env: DHSCHED_ROOM_OWN_ICE_SERVERS]"
        ),
    ] = None,
    turn_secret_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="File with the TURN servers' shared secret. [env: DHSCHED_ROOM_TURN_SECRET_FILE]"
        ),
    ] = None,
    whip: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="WHIP ingest for each live; {live} is the live's id. [env: DHSCHED_ROOM_WHIP]"
        ),
    ] = None,
    whip_token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File with the ingest's bearer token. [env: DHSCHED_ROOM_WHIP_TOKEN_FILE]"),
    ] = None,
    access: Access = None,
    insecure: Insecure = None,
    allowed_origins: AllowedOrigins = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            help="File with an API key of role room. "
            "[env: DHSCHED_ROOM_KEY_FILE, or DHSCHED_ROOM_KEY for the key itself]"
        ),
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
) -> None:
    """Run a room, in which viewers watch lives while Workers come and go. Needs the extra `avatar`."""
    from dhsched.room.settings import RoomSettings

    try:
        from dhsched.room.app import run_room  # Late: it needs the extra.
    except ImportError as error:
        raise BadSetting(f"a room needs the extra: pip install 'dhsched[avatar]' ({error})") from error
    run_role(RoomSettings, locals(), run_room)


@app.command()
def store(
    data: Annotated[
        Path | None, typer.Option(help="Folder for the data. Without it, the data is lost when the store stops.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1 to listen on as well; 0 is none.")] = 0,
) -> None:
    """Run a store server on a private socket and print its URL, for --store or DHSCHED_STORE.

    With --port the store has a password. The printed URL then names a file that has the store's URL with the password.
    The next run on the same data uses the same password.
    """
    from dhsched.web import run_service

    run_service(lambda stop: _run_store(data, port, stop))


def run_role(kind: type[Any], given: Mapping[str, Any], run: Callable[..., Coroutine[Any, Any, None]]) -> None:
    """Run a role with settings from these flags and the environment; print the URL at which the role listens."""
    from dhsched.pauses import freeze
    from dhsched.web import run_service

    settings = settings_and_logging(kind, given)

    def say(url: str) -> None:
        freeze()
        typer.echo(f"{kind.ROLE} listens on {url}")

    run_service(lambda stop: run(settings, stop, say=say))


def settings_and_logging(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """Return the settings of a role, and configure logging as they say."""
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
    """Return the password of an earlier run on the same data, so that its clients can connect again, or None."""
    from dhsched.store.link.address import parse_address

    file = data.absolute() / STORE_URL if data is not None else None
    return parse_address(file.as_uri()).password if file is not None and file.exists() else None


def write_url(folder: Path, url: str) -> str:
    """Write the store's URL into a file that only this user can read, and return that file's URL."""
    file = folder.absolute() / STORE_URL
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as out:
        out.write(url + "\n")
    return file.as_uri()
