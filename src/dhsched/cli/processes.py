"""`dhsched run infer`, `dhsched run worker` and `dhsched run room`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dhsched.cli.run import (
    Access,
    AllowedOrigins,
    AllowEviction,
    Cell,
    Config,
    Insecure,
    LogJson,
    LogLevel,
    StoreUrl,
    TlsCert,
    TlsKey,
)
from dhsched.errors import BadSetting

TlsCa = Annotated[str | None, typer.Option(help="The servers' authority, PEM (DHSCHED_TLS_CA).", metavar="FILE")]


def add_to(family: typer.Typer) -> None:
    """These verbs, in the family `run`."""
    family.command("infer")(infer)
    family.command("worker")(worker)
    family.command("room")(room)


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
    from dhsched.infer.app import run_infer  # Late, so that other verbs do not load it.
    from dhsched.infer.settings import InferSettings
    from dhsched.settings import settings_from
    from dhsched.web import run_service
    from dhsched.web.logs import configure_logging

    settings = settings_from(InferSettings, locals())
    configure_logging(level=settings.log_level, json=settings.log_json)
    run_service(lambda stop: run_infer(settings, stop, say=lambda url: typer.echo(f"infer listens on {url}")))


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
    from dhsched.settings import settings_from
    from dhsched.web.logs import configure_logging
    from dhsched.worker.exec import Exec
    from dhsched.worker.main import run_here
    from dhsched.worker.runtimes import load_runtime
    from dhsched.worker.settings import WorkerSettings

    if bool(runtime) == bool(exec_):
        raise BadSetting("give either --runtime or --exec: one of them runs the lives")
    settings = settings_from(WorkerSettings, given)
    configure_logging(level=settings.log_level, json=settings.log_json)
    run_here(settings, Exec(exec_) if exec_ else load_runtime(runtime))


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
    from dhsched.settings import settings_from
    from dhsched.web import run_service
    from dhsched.web.logs import configure_logging

    try:
        from dhsched.room.app import run_room  # Late: it needs the extra.
    except ImportError as error:
        raise BadSetting(f"a room needs the extra: pip install 'dhsched[avatar]' ({error})") from error
    settings = settings_from(RoomSettings, locals())
    configure_logging(level=settings.log_level, json=settings.log_json)
    run_service(lambda stop: run_room(settings, stop, say=lambda url: typer.echo(f"room listens on {url}")))
