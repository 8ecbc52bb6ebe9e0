"""A Worker for drive.py: `python -m dhsched.calibrate.timed_worker --runtime my:f`.

It prints when its runtime acks, and how much output the runtime has reported as late by then.
The runtime, the session and the Worker are the real ones. The settings come from the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from dhsched.errors import DhschedError
from dhsched.settings import settings_from
from dhsched.web.logs import configure_logging
from dhsched.worker.exec import Exec
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.main import run_here
from dhsched.worker.reasons import reason_of
from dhsched.worker.runtimes import Runtime, load_function, load_runtime
from dhsched.worker.session import Session
from dhsched.worker.settings import WorkerSettings

MARK = "dhsched calibrate "
"""Lines that begin so are ours; the runtime may print any others."""


def say(**what: Any) -> None:
    # One write per line: the runtime's threads may print too.
    os.write(sys.stdout.fileno(), f"\n{MARK}{json.dumps(what)}\n".encode())


def timed(runtime: Runtime) -> Runtime:
    """Return the runtime with its acks and its crashes printed."""

    async def run(session: Session) -> None:
        inbox = SessionInbox(session)
        inbox.watch_acks(lambda n: say(live=session.live, item=n, at=time.monotonic(), late_s=inbox.late_s))
        try:
            await runtime(session)
        except Exception as error:
            say(live=session.live, crashed=reason_of(error))
            raise

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime", default="")
    parser.add_argument("--exec", default="")
    parser.add_argument("--setup", default="")
    given = parser.parse_args()
    settings = settings_from(WorkerSettings, {})
    configure_logging(level=settings.log_level, json=settings.log_json)
    setup = load_function("setup", given.setup) if given.setup else None
    run_here(settings, Exec(given.exec) if given.exec else load_runtime(given.runtime), setup, wrap=timed)


if __name__ == "__main__":
    try:
        main()
    except DhschedError as error:
        sys.exit(f"dhsched: {error}")
