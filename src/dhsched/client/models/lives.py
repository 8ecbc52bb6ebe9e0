"""Lives: how they are created, moved, ended and shown. Live ids here are without their tenant."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from dhsched.client.models.base import UNSET, CellName, Json, LeftOut, Lifetime, Optional, Strict, one_of
from dhsched.client.models.pools import LABELS_MAX, Label
from dhsched.placement import Explanation
from dhsched.types import NUMBER_MAX, PRIORITIES, Id, LiveState, WorkerId, whole

AVOID_MAX = 64  # Workers that a reassign may avoid; more are refused.
ENDS_MAX = 100  # Lives that one request ends; more are refused with BAD_REQUEST.

LiveLabels = Annotated[
    list[Label], msgspec.Meta(max_length=LABELS_MAX, description="Labels, 1,024 characters in all at most.")
]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]

Epoch = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class CreateLive(Strict):
    """A new live. Without `live_id` (or an Idempotency-Key) the server makes an id, and a retry makes another live.

    The live ends when it got no input for `idle_s`, and when it is `max_s` old; input that waits is consumed first. If
    one of them is left out, the first Pool of the DigitalID may set it; null is no limit.
    """

    digital_id: Id
    live_id: Id | Optional = UNSET
    room: Id | Optional = UNSET
    metadata: Json = msgspec.field(default_factory=dict)
    config: Json = msgspec.field(default_factory=dict)
    priority: Annotated[int, msgspec.Meta(ge=0, lt=PRIORITIES)] = 1
    immovable: bool = False
    idle_s: Lifetime | Optional | None = UNSET
    max_s: Lifetime | Optional | None = UNSET
    labels: LiveLabels = msgspec.field(default_factory=list)


class ChangeLive(Strict):
    """Replace the metadata, the labels, or both, each as a whole. What is left out stays."""

    metadata: Json | Optional = UNSET
    labels: LiveLabels | Optional = UNSET


class LiveFilters(Strict):
    """Filters: a live must match every one that is given.

    `label` is a label, or several with commas, which the live must all have. `age_s` and `idle_s` are the least: a
    live at least this old, or without input for at least this long. The last input is known to within half a minute.
    """

    state: LiveState | Optional = UNSET
    worker: WorkerId | Optional = UNSET
    pool: Id | Optional = UNSET
    digital_id: Id | Optional = UNSET
    label: Annotated[str, whole(r"[A-Za-z0-9._~=-]{1,64}(,[A-Za-z0-9._~=-]{1,64}){0,31}")] | Optional = UNSET
    age_s: Seconds | Optional = UNSET
    idle_s: Seconds | Optional = UNSET
    stalled: bool | Optional = UNSET


class EndLives(LiveFilters):
    """End lives that match, up to `limit` of them, now or once their pending input has been acked.

    `after` is the `next` of the call before.
    """

    limit: Annotated[int, msgspec.Meta(ge=1, le=ENDS_MAX)] = ENDS_MAX
    after: Id | Optional = UNSET
    after_pending: bool = False


class EndedLives(msgspec.Struct, frozen=True):
    """The lives that this call has ended, or is ending after their input. `more`: others may match; go on at `next`."""

    live_ids: list[str]
    more: bool
    next: str | None
    cells_left_out: LeftOut | Optional = UNSET


class Reassign(Strict):
    """Move the live off its Worker. `target` is used or refused, never replaced; `avoid` only ranks Workers last."""

    expected_epoch: Epoch
    target: WorkerId | Optional = UNSET
    avoid: Annotated[list[WorkerId], msgspec.Meta(max_length=AVOID_MAX)] = msgspec.field(default_factory=list)


class End(Strict):
    """End the live now, or once its pending input has been acked."""

    after_pending: bool = False


class ShowPublishing(Strict):
    """A publish token, as a Worker showed it."""

    token: Annotated[str, msgspec.Meta(max_length=2_048)]


class Generation(msgspec.Struct, frozen=True):
    """The Worker and epoch that may consume the live's input."""

    worker: str
    epoch: int


class PublishingOut(msgspec.Struct, frozen=True):
    """The generation of a publish token, and the current one: the token may publish only if they are equal.

    `home` is the home of the store in which the current one was read; numbers of two homes have no order. Each cell has
    a home of its own.
    """

    live: str
    live_id: str
    worker: str
    epoch: int
    current: Generation
    cause: str
    state: str
    home: str = ""
    cell: CellName | Optional = UNSET

    @property
    def cell_name(self) -> str:
        """Return the cell, empty where the deployment has only one."""
        return self.cell if isinstance(self.cell, str) else ""


class Placed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The live's place. `again` says that this very call had been done before."""

    live_id: str
    worker: str
    epoch: int
    again: bool = False
    superseded_by: Generation | None = None
    explanation: Explanation | None = None


class Ended(msgspec.Struct, frozen=True):
    """The live's state after the call."""

    live_id: str
    state: Annotated[str, one_of("open", "closing", "ended")]


class LiveHead(msgspec.Struct, frozen=True):
    """The fields that every document about a live begins with. `claimed`: its Worker has claimed the generation."""

    live_id: str
    digital_id: str
    room: str
    state: str
    worker: str
    epoch: int
    claimed: bool
    priority: int


class LiveSummary(LiveHead, frozen=True):
    """A live in a list. Times are the store's, in milliseconds. `idle_since_ms` is null if input came just now."""

    pending: int
    cause: str
    committed_at_ms: int
    moving_to: str
    waiting: bool
    stalled: bool
    labels: list[str]
    created_at_ms: int
    idle_since_ms: int | None
    expired: str
    cell: CellName | Optional = UNSET


class LiveList(msgspec.Struct, frozen=True):
    """One page by name. `next` is null on the last page; a page may be short, or empty, if a filter is rare."""

    lives: list[LiveSummary]
    next: str | None
    cells_left_out: LeftOut | Optional = UNSET


class MoveOut(msgspec.Struct, frozen=True):
    """A planned move under way."""

    target: str
    number: int
    expires_at_ms: int
    hold: int | Annotated[str, one_of("next")] | None


class CrashOut(msgspec.Struct, frozen=True):
    """A generation whose runtime ended without a request to stop."""

    epoch: int
    worker: str
    reason: str


class SavedState(msgspec.Struct, frozen=True):
    """The state that a live's runtime saved last, with the ack of item `seq`. `value` is a JSON value, or null where
    the state is bytes: then `hex` has the first 4,096 of them as digits. `bytes` is 0 if nothing was saved."""

    live_id: str
    seq: int
    bytes: int
    value: Any
    hex: str | None


class Live(LiveHead, frozen=True):
    """Everything about a live but its input. `crash` is the latest crash that its history still has. `device` is the
    device that it runs on, if its Worker has named its devices.

    `idle_s` and `max_s` are its lifetime, null without one. `expired` is why that is over, `idle` or `age`, else empty.
    `idle_since_ms` is when the last input was noticed, which is within half a minute; until then it is null.
    """

    immovable: bool
    metadata: dict[str, Any]
    config: dict[str, Any]
    cause: str
    operation: str
    committed_at_ms: int
    claimed_at_ms: int
    first_ack_at_ms: int
    ended_at_ms: int
    appended: int
    released: int
    acked: int
    pending: int
    dropped: dict[str, int]
    dead_letters: int
    stalled: bool
    tries: int
    waiting_for: list[str]
    move: MoveOut | None
    labels: list[str]
    created_at_ms: int
    idle_since_ms: int | None
    idle_s: float | None
    max_s: float | None
    expired: Annotated[str, one_of("", "idle", "age")]
    crash: CrashOut | None = None
    device: str = ""
    cell: CellName | Optional = UNSET


class HistoryRow(msgspec.Struct, frozen=True):
    """One generation. Times are the store's in milliseconds, 0 for what never happened.

    `source` is the Worker before. Phases are null if they did not happen or are not known any more: `detect_ms` the
    source's silence until it counted as lost, `place_ms` from there to the commit, `wait_ms` of that in the queue for a
    free slot, `claim_ms` from the commit to the claim, `first_ack_ms` from the claim to the first ack. `reason` is the
    Worker's account of how its runtime ended; empty if it goes on, was stopped on request, or went with its Worker.
    """

    epoch: int
    worker: str
    source: str
    cause: str
    need: str
    operation: str
    committed_at_ms: int
    claimed_at_ms: int
    first_ack_at_ms: int
    detect_ms: int | None = None
    place_ms: int | None = None
    wait_ms: int | None = None
    claim_ms: int | None = None
    first_ack_ms: int | None = None
    reason: str = ""


class History(msgspec.Struct, frozen=True):
    """The live's generations, the current one first; when it was created and ended, and why if its lifetime is over."""

    live_id: str
    generations: list[HistoryRow]
    created_at_ms: int = 0
    ended_at_ms: int = 0
    expired: Annotated[str, one_of("", "idle", "age")] = ""


class LogLine(msgspec.Struct, frozen=True):
    """A line that a runtime of the live has logged. `n` counts the live's lines from 1; the time is the store's.

    `source` is the line's level, or stdout or stderr of a child process. A line of source `dropped` says how many lines
    the Worker has not sent, because there were too many.
    """

    n: int
    at_ms: int
    epoch: int
    worker: str
    source: str
    text: str


class Log(msgspec.Struct, frozen=True):
    """The last log lines of a live's runtimes, the oldest first. `ended` is set once the live has ended."""

    live_id: str
    lines: list[LogLine]
    ended: bool = False


class WhyOut(msgspec.Struct, frozen=True):
    """Why the live is on its Worker, or why it has none.

    `explained` is `then` if this replica made the last choice and remembers it, `now` if the explanation is how the
    choice would be made at this moment.
    """

    live_id: str
    outcome: str
    generation: HistoryRow | None
    explained: Annotated[str, one_of("then", "now")]
    explanation: Explanation
    cell: CellName | Optional = UNSET


class DeadLetter(msgspec.Struct, frozen=True):
    """An item that was dropped as poison. `id` names it by its content, `reason` is why its last runtime died."""

    id: str
    kind: str
    boundary: bool
    text: str
    reason: str = ""


class DeadLetters(msgspec.Struct, frozen=True):
    """Dead letters, the oldest first."""

    live_id: str
    items: list[DeadLetter]


class PushedAgain(msgspec.Struct, frozen=True):
    """The item's number in the live's input; null if an earlier try had already pushed it."""

    live_id: str
    seq: int | None
