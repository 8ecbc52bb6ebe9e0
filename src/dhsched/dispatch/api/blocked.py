"""Workers whose event loop is blocked: what their watchdog says counts as their beat (worker/watchdog.py).

The Worker's own link is silent meanwhile, and the replica that has it closes it as half-open; that alone loses nobody,
and the Worker comes back when its loop turns. How long a watchdog goes on is the Worker's `blocked_max_s`. A Worker
that is lost already stays so: only its own report revives it, or it would be lost and revived in turns.
"""

from __future__ import annotations

from dhsched.access.gate import bearer
from dhsched.client.models import workers as m
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.context import DispatchContext
from dhsched.errors import BadToken, Forbidden, TooManyRequests
from dhsched.ownership import outcomes as o
from dhsched.store.records.workers import is_yes
from dhsched.tokens import Tokens
from dhsched.types import clean_reason
from dhsched.web import Endpoint, HeaderParameter, Problem, Request

BEAT_MIN_S = 0.2  # Between two beats of one Worker at this replica.
EVENT_MIN_S = 10.0  # Between two events about one Worker that this replica says.
REMEMBERED_MAX = 4_096  # Workers of which it is known when they were last heard; past it, only the latest of them.


class BlockedWorkers:
    """The endpoint, of one replica."""

    def __init__(self, context: DispatchContext) -> None:
        self.context = context
        self._beats: dict[str, float] = {}
        self._events: dict[str, float] = {}

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="say_blocked",
                method="POST",
                path="/v1/workers/{worker}/blocked",
                handler=self.say,
                summary="A Worker's watchdog: its event loop is blocked, and it is there; with its boot token.",
                tag="workers",
                path_type=p.WorkerPath,
                body=m.Blocked,
                headers=[HeaderParameter("Authorization", str, "Bearer and the boot's own token.")],
                replies={200: m.BlockedOut},
            )
        ]

    async def say(self, asked: Request) -> m.BlockedOut:
        try:
            boot = (await Tokens(self.context.ring).read(bearer(asked.header("Authorization")))).boot
        except BadToken as error:
            raise Problem("UNAUTHORIZED", str(error)) from error
        worker, now = boot.worker, self.context.loop_time()
        if worker != asked.path.worker:
            raise Forbidden(f"this token is of Worker {worker}, which does not speak for {asked.path.worker}")
        if not passes(self._beats, worker, now, BEAT_MIN_S):
            raise TooManyRequests(f"{worker} said so less than {BEAT_MIN_S:g} s ago", retry_after_s=1)
        if asked.body.tell and passes(self._events, worker, now, EVENT_MIN_S):
            self.context.events.say(
                "worker_blocked",
                worker=worker,
                blocked_ms=asked.body.blocked_ms,
                frame=clean_reason(asked.body.frame),
            )
        store = self.context.store
        if is_yes(await store.records.workers.lost(worker)):
            return m.BlockedOut(worker, counted=False)
        outcome = await store.report(worker=worker, boot=boot.boot, link=self.context.replica)
        return m.BlockedOut(worker, counted=isinstance(outcome, o.Reported))


def passes(last: dict[str, float], worker: str, now: float, least_s: float) -> bool:
    """Whether the Worker was not heard in the last `least_s`; if so, it counts as heard now."""
    if now - last.get(worker, float("-inf")) < least_s:
        return False
    last.pop(worker, None)
    last[worker] = now
    if len(last) > REMEMBERED_MAX:
        del last[next(iter(last))]
    return True
