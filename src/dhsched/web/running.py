"""Listening: from an application to its URL, until it is asked to stop; and the event loop that it runs on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

from aiohttp import web

from dhsched import pauses
from dhsched.errors import DhschedError
from dhsched.pauses import PAUSES
from dhsched.web.proxies import AddressLimit
from dhsched.web.reading import BoundedReading, new_buffer

ACCEPTS_MAX = 8
"""New connections in one tick of the loop. uvloop accepts one a tick on each listener, so there are several on the same
socket: otherwise everybody's connections would queue behind a flood of them, the longer the ticks the longer."""
LINGER_S = 2.0  # The rest of a refused body is received for this long, so that its sender can read the refusal.


@contextlib.asynccontextmanager
async def listening(
    app: web.Application,
    *,
    host: str,
    port: int,
    stop_s: float = 10.0,
    tls: ssl.SSLContext | None = None,
    head_s: float = 10.0,
    idle_s: float = 75.0,
    limit: AddressLimit | None = None,
) -> AsyncIterator[str]:
    """Listen during the block and yield the URL; at its end refuse new connections and give requests in flight `stop_s`
    to finish. For `head_s` and `idle_s` see reading.py; `limit` is on the connections of one address."""
    # No body is inflated: 50 kB could become 50 MB, in one tick of the loop.
    kept_open: dict[str, Any] = {"keepalive_timeout": idle_s, "lingering_time": LINGER_S, "auto_decompress": False}
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=stop_s, handle_signals=False, **kept_open)
    await runner.setup()
    listeners: list[asyncio.Server] = []
    try:
        make = runner.server
        assert make is not None
        buffer = new_buffer()
        try:
            listen = partial(
                asyncio.get_running_loop().create_server,
                lambda: BoundedReading(make(), buffer, head_s, limit),
                backlog=1024,
                ssl=tls,
                ssl_handshake_timeout=head_s if tls else None,
            )
            listeners.append(await listen(host, port))
            bound = listeners[0].sockets
            for each in [*bound] * (ACCEPTS_MAX - 1):
                listeners.append(await listen(sock=socket.fromfd(each.fileno(), each.family, each.type)))
        except OSError as error:
            reason = error.strerror or error
            raise DhschedError(
                f"cannot listen on {host}:{port} ({reason}): choose another port, or stop the process that has it"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        yield f"{'https' if tls else 'http'}://{shown}:{bound[0].getsockname()[1]}"
    finally:
        for listener in listeners:
            listener.close()
        await runner.cleanup()


async def serve(
    app: web.Application,
    *,
    say: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    **listener: Any,
) -> None:
    """Serve until `stop` is set, and call `say` with the URL. `listener` are keyword arguments of `listening`."""
    async with listening(app, **listener) as url:
        if say is not None:
            say(url)
        await (stop or asyncio.Event()).wait()


def run_service(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run `main` on the product's event loop and measure its pauses. SIGTERM or SIGINT sets its event; a second signal
    cancels `main`."""

    async def until_signalled() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        PAUSES.begin(loop)
        task = asyncio.ensure_future(main(stop))

        def asked_to_stop() -> None:
            if stop.is_set():
                task.cancel()
            stop.set()

        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, asked_to_stop)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    run_loop(until_signalled())


def run_loop(main: Coroutine[Any, Any, None], *, runs_code_of_others: bool = False) -> None:
    """Run `main` on the product's event loop, in a process whose pauses are kept short (pauses.py)."""
    pauses.keep_short(runs_code_of_others=runs_code_of_others)
    with asyncio.Runner(loop_factory=product_loop()) as runner:
        runner.run(main)


def product_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loop, or None where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:  # Not on Windows.
        return None
    return uvloop.new_event_loop
