"""The watchdog: notices that a runtime blocks the event loop, logs where, and reports the Worker alive for a while.

Reports run on the loop that runs the runtimes. A runtime that calls blocking code stops the reports, and the Worker
would count as lost although its item will be done in a moment. So a separate thread checks whether the loop still
turns. After `LOG_S` the thread logs the stack that blocks; from then on it sends the Worker's beat over HTTP, once a
second, for `blocked_max_s` at most. Then it sends no more: a loop that is blocked for ever must look dead,
because nothing on this Worker moves.

`decide` is pure and chooses the actions. A frozen process is not a blocked loop: time in which the thread itself did
not run does not count. Code that holds the interpreter's lock stops this thread as well; such a Worker is lost after
`worker_ttl_s` like a frozen one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from urllib.parse import quote, urlsplit

import structlog

from dhsched.links.messages import REPORT_S
from dhsched.worker.reasons import place_of

log = structlog.get_logger(__name__)

TICK_S = 0.1  # Between two counted turns of the loop, and between two checks of the count.
LOG_S = 0.5  # A loop that has not turned for this long is blocked, and its stack is logged.
TELL_S = 1.0  # A beat of a loop that is blocked for this long becomes an event.
GAP_S = 1.0  # A longer gap between two checks means that the thread itself was frozen: counting begins anew.
POST_S = 1.0  # A beat fails if any step of its call takes this long.
RETRY_S = 0.25  # Wait before a beat that a replica did not take is sent to the next replica.
STOP_S = 0.5  # A thread that has not ended after this long is left to end with the process.
STACK_MAX = 16  # Outer frames beyond this are left out of the log.
FRAMES_MAX = 4  # Outer frames beyond this are left out of the event.
UNAUTHORIZED = (401, 403)


@dataclass(frozen=True, slots=True)
class Watch:
    """What the watchdog has seen so far. Times are of the monotonic clock."""

    turns: int = -1
    since: float = 0.0
    """When the loop was last seen to turn."""
    read_at: float = float("-inf")
    logged: bool = False
    beat_at: float = float("-inf")
    told: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """Log the line on which the loop is blocked."""

    blocked_s: float


@dataclass(frozen=True, slots=True)
class Beat:
    """Send the Worker's beat to Dispatch; `tell` requests an event."""

    blocked_s: float
    tell: bool


@dataclass(frozen=True, slots=True)
class FallSilent:
    """Stop sending beats: the loop has been blocked for too long."""

    blocked_s: float


@dataclass(frozen=True, slots=True)
class Over:
    """Log that the loop turns again."""

    blocked_s: float


Action = Log | Beat | FallSilent | Over


def decide(watch: Watch, *, now: float, turns: int, blocked_max_s: float) -> tuple[Watch, list[Action]]:
    """Compare the count of turns with the last check; return the new watch and the actions that are due."""
    blocked_s = now - watch.since
    if turns != watch.turns or now - watch.read_at > GAP_S:
        over: list[Action] = [Over(blocked_s)] if watch.logged else []
        return Watch(turns=turns, since=now, read_at=now), over
    watch = replace(watch, read_at=now)
    if blocked_s < LOG_S:
        return watch, []
    actions: list[Action] = [] if watch.logged else [Log(blocked_s)]
    watch = replace(watch, logged=True)
    if blocked_s > blocked_max_s:
        return replace(watch, silent=True), actions if watch.silent else [*actions, FallSilent(blocked_s)]
    if now - watch.beat_at >= REPORT_S:
        watch = replace(watch, beat_at=now)
        actions.append(Beat(blocked_s, tell=blocked_s >= TELL_S and not watch.told))
    return watch, actions


@dataclass(frozen=True, slots=True)
class Speaker:
    """The Worker that the watchdog reports for, and the replicas to report to, the linked one first."""

    worker: str
    token: str
    urls: Sequence[str]


class Watchdog:
    """The thread, and what it knows of the loop. `speaker` is called for each beat; on None no beat is sent."""

    def __init__(self, blocked_max_s: float, tls: ssl.SSLContext) -> None:
        self.speaker: Callable[[], Speaker | None] = lambda: None
        self._blocked_max_s = blocked_max_s
        self._tls = tls
        self._turns = 0
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None
        self._failed = 0  # Beats in a row that no replica took; chooses the next replica.
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._turn()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join(STOP_S)

    def _turn(self) -> None:
        """Count one turn of the loop, on the loop."""
        self._turns += 1
        self._timer = self._loop.call_later(TICK_S, self._turn)

    # -- in the thread

    def _run(self) -> None:
        watch = Watch()
        while not self._stopped.wait(TICK_S):
            watch, actions = decide(watch, now=time.monotonic(), turns=self._turns, blocked_max_s=self._blocked_max_s)
            for action in actions:
                watch = self._act(action, watch)
            if actions:
                # The actions took time in which the thread was not frozen.
                watch = replace(watch, read_at=time.monotonic())

    def _act(self, action: Action, watch: Watch) -> Watch:
        frame = sys._current_frames().get(self._watched)
        match action:
            case Log(blocked_s):
                log.warning(
                    "a runtime blocks the event loop: every live on this Worker stands still",
                    blocked_s=round(blocked_s, 1),
                    frame=places(frame),
                    stack="".join(traceback.format_stack(frame, STACK_MAX)) if frame is not None else "",
                )
            case Beat(blocked_s, tell):
                if self._beat(blocked_s, places(frame), tell):
                    return replace(watch, told=watch.told or tell)
                return replace(watch, beat_at=time.monotonic() - REPORT_S + RETRY_S)
            case FallSilent(blocked_s):
                log.error("the event loop is still blocked: this Worker is silent now", blocked_s=round(blocked_s, 1))
            case Over(blocked_s):
                log.warning("the event loop turns again", blocked_s=round(blocked_s, 1))
        return watch

    def _beat(self, blocked_s: float, frame: str, tell: bool) -> bool:
        """Send one beat; return False if it must be repeated, True if a replica took it or none will."""
        if (speaker := self.speaker()) is None or not speaker.urls:
            return True
        url = speaker.urls[self._failed % len(speaker.urls)]
        try:
            status = post(
                f"{url.rstrip('/')}/v1/workers/{quote(speaker.worker)}/blocked",
                {"blocked_ms": int(blocked_s * 1000), "frame": frame, "tell": tell},
                token=speaker.token,
                tls=self._tls,
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            status = 0
            log.warning("no replica took the report of a blocked loop", replica=url, reason=str(error))
        settled = 200 <= status < 300 or status in UNAUTHORIZED
        self._failed = 0 if settled else self._failed + 1
        return settled


@contextmanager
def watching(blocked_max_s: float, tls: ssl.SSLContext) -> Iterator[Watchdog]:
    """Watch the running loop until the block is left."""
    watchdog = Watchdog(blocked_max_s, tls)
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()


def places(frame: FrameType | None) -> str:
    """Return where a thread is, innermost frame first: `model.py:41 generate, my_runtime.py:12 speak`."""
    found: list[str] = []
    while frame is not None and len(found) < FRAMES_MAX:
        found.append(place_of(frame, frame.f_lineno))
        frame = frame.f_back
    return ", ".join(found)


def post(url: str, body: dict[str, object], *, token: str, tls: ssl.SSLContext) -> int:
    """Send one POST without an event loop; return the status of the answer."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=POST_S, context=tls)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=POST_S)
    )
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", parts.path, body=json.dumps(body), headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
