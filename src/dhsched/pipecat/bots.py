"""Run bots: a Worker whose runtime is a bot, by default in a process per live."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Unpack

from loguru import logger

from dhsched.errors import BadSetting
from dhsched.pipecat.live import Live
from dhsched.worker import Runtime, Session, WorkerOptions, run
from dhsched.worker.runtimes import load_function

Bot = Callable[[Live], Awaitable[None]]

BOT = "DHSCHED_PIPECAT_BOT"
"""The variable that names the bot for `serve`: `module:function`."""


def run_bot(bot: Bot, **options: Unpack[WorkerOptions]) -> None:
    """Run a Worker on this machine that serves each of its lives with the bot, until a signal stops it.

    `options` are those of `dhsched.worker.run`: `pool` and `capacity` at least. `process_per_live` is True unless it is
    given. Children do not get this process's environment: name what the bot needs, such as its API keys, in `exec_env`.
    """
    if not options.setdefault("process_per_live", True):
        run(runtime_of(bot), **options)
        return
    os.environ[BOT] = importable(bot)
    named = options.get("exec_env") or os.environ.get("DHSCHED_WORKER_EXEC_ENV", "")
    options["exec_env"] = ",".join(filter(None, (BOT, named)))
    run(serve, **options)


async def serve(session: Session) -> None:
    """Call the bot that the environment variable DHSCHED_PIPECAT_BOT names. This is the runtime for `dhsched run worker
    --runtime dhsched.pipecat.bots:serve`."""
    if not (name := os.environ.get(BOT)):
        raise BadSetting(f"no bot is named: set {BOT} to module:function, and pass it on with --exec-env {BOT}")
    quiet()
    await runtime_of(load_function("bot", name))(session)


def runtime_of(bot: Bot) -> Runtime:
    """Return a runtime that calls the bot, for `dhsched.testing.live`, `Worker` or `run`."""

    @functools.wraps(bot)
    async def runtime(session: Session) -> None:
        await bot(Live(session))

    return runtime


def importable(bot: Bot) -> str:
    """Return `module:function` for the bot, and have children find a script's folder. Raise BadSetting if a process
    cannot import the bot so."""
    module, name = getattr(bot, "__module__", ""), getattr(bot, "__qualname__", "")
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else ""
        if spec is None and file:
            paths = [str(Path(file).resolve().parent), os.environ.get("PYTHONPATH", "")]
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if not module or not name or "." in name or "<" in name:
        raise BadSetting(
            f"a process per live needs a bot that another process can import, and {name or bot!r} is not such: define "
            "it in a module, outside of functions and classes, or set process_per_live=False"
        )
    return f"{module}:{name}"


@functools.cache
def quiet() -> None:
    """Log from level INFO on: Pipecat logs each frame of interest at DEBUG, and what was said with it. A bot may set up
    the logger otherwise when it is imported."""
    logger.remove()
    logger.add(sys.stderr, level="INFO")
