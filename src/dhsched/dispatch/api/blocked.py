"""Workers whose event loop is blocked: a request of the Worker's watchdog counts as its beat (worker/watchdog.py).

The Worker's own link is silent meanwhile, and the replica at its other end closes the link as half-open. A closed link
alone makes no Worker lost, and the Worker links again when its event loop goes on. The watchdog stops after the
Worker's `blocked_max_s`. A Worker that is lost already stays lost: only its own report revives it, because otherwise it
would be lost and revived in turns.
"""

from __future__ import annotations

from dhsched.access.gate import bearer
from dhsched.client.models import workers as m
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.context import DispatchContext
from dhsched.errors import BadToken, Forbidden, TooManyRequests
from dhsched.ownership import outcomes as o
from dhsched.store.records.workers import is_yes
from dhsched.tokens import Tokens
from dhsched.types import clean_reason
from dhsched.web import Endpoint, HeaderParameter, Problem, Request

BEAT_MIN_S = 0.2  # A watchdog that sends again within this time is refused (429).
EVENT_MIN_S = 10.0  # Within this time, this replica writes no second event about the same Worker.
REMEMBERED_MAX = 4_096  # Workers whose last request is remembered; past this the oldest is forgotten and not limited.


class BlockedWorkers(Part):
    """The endpoint for watchdogs, of one replica."""

    def __init__(self, context: DispatchContext) -> None:
        super().__init__(context)
        self._beats: dict[str, float] = {}
        self._events: dict[str, float] = {}

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="say_blocked",
                audited=False,  # It changes nothing but what is said of the Worker, which is an event.
                method="POST",
                path="/v1/workers/{worker}/blocked",
                handler=self.say,
                summary="Report that a Worker's event loop is blocked; for its watchdog, with the boot token.",
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
            raise Forbidden(f"this token is of Worker {worker}; use a token of {asked.path.worker}")
        if not passes(self._beats, worker, now, BEAT_MIN_S):
            raise TooManyRequests(f"{worker} reported this less than {BEAT_MIN_S:g} s ago", retry_after_s=1)
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
    """Return whether `last` has no entry of the Worker from the last `least_s`; if so, set its entry to `now`."""
    if now - last.get(worker, float("-inf")) < least_s:
        return False
    last.pop(worker, None)
    last[worker] = now
    if len(last) > REMEMBERED_MAX:
        del last[next(iter(last))]
    return True
