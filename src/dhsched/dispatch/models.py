"""What the API of lives and Workers takes and gives. Live ids here are without their tenant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dhsched.placement import Explanation
from dhsched.types import NUMBER_MAX, PRIORITIES, LiveState
from dhsched.web import Flag, Id, WorkerId

AVOID_MAX = 64
PAGE_DEFAULT = 100
PAGE_MAX = 1_000

Epoch = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Json = Annotated[dict[str, Any], msgspec.Meta(description="Any JSON object; stored as it is, for the runtime.")]
Optional = msgspec.UnsetType
UNSET = msgspec.UNSET
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """What we are sent: a field that we do not know is refused."""


# -- lives


class CreateLive(Strict):
    """A new live. Without `live_id` (or an Idempotency-Key) the server makes one, and a retry makes another live."""

    digital_id: Id
    live_id: Id | Optional = UNSET
    room: Id | Optional = UNSET
    metadata: Json = {}
    config: Json = {}
    priority: Annotated[int, msgspec.Meta(ge=0, lt=PRIORITIES)] = 1
    immovable: bool = False


class CreateQuery(Strict):
    """`wait_s` waits for room instead of answering FULL; `explain` adds why the live went where it went."""

    wait_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 0
    explain: Flag = "0"


class ExplainQuery(Strict):
    explain: Flag = "0"


class LivePath(Strict):
    live_id: Id


class ShowPublishing(Strict):
    """A publish token, as a Worker showed it."""

    token: Annotated[str, msgspec.Meta(max_length=2_048)]


class Reassign(Strict):
    """Move the live off its Worker. `target` is met or refused, never replaced; `avoid` only puts Workers last."""

    expected_epoch: Epoch
    target: WorkerId | Optional = UNSET
    avoid: Annotated[list[WorkerId], msgspec.Meta(max_length=AVOID_MAX)] = []


class End(Strict):
    """End the live now, or once its pending input has been acked."""

    after_pending: bool = False


class ListQuery(Strict):
    """Filters narrow the list; `after` is the `next` of the page before."""

    state: LiveState | Optional = UNSET
    worker: WorkerId | Optional = UNSET
    pool: Id | Optional = UNSET
    digital_id: Id | Optional = UNSET
    tenant: Id | Optional = UNSET
    after: Id | Optional = UNSET
    limit: Limit = PAGE_DEFAULT


class GenerationOut(msgspec.Struct, frozen=True):
    """Who may consume the live's input."""

    worker: str
    epoch: int


class PublishingOut(msgspec.Struct, frozen=True):
    """Which generation a publish token is for, and which one is current: only when they are equal may it publish."""

    live: str
    live_id: str
    worker: str
    epoch: int
    current: GenerationOut
    cause: str
    state: str


class Placed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the live is. `again` says that this very call had been done before."""

    live_id: str
    worker: str
    epoch: int
    again: bool = False
    superseded_by: GenerationOut | None = None
    explanation: Explanation | None = None


class Finished(msgspec.Struct, frozen=True):
    """The live's state after the call."""

    live_id: str
    state: LiveState


class LiveSummary(msgspec.Struct, frozen=True):
    """A live in a list. `active` says that its Worker has taken it up; times are the store's, in milliseconds."""

    live_id: str
    digital_id: str
    room: str
    state: str
    worker: str
    epoch: int
    active: bool
    priority: int
    pending: int
    cause: str
    committed_at_ms: int
    moving_to: str
    waiting: bool


class LiveList(msgspec.Struct, frozen=True):
    """One page by name. `next` is null on the last one; a page may be short, or empty, where a filter is rare."""

    lives: list[LiveSummary]
    next: str | None


class MoveOut(msgspec.Struct, frozen=True):
    """A planned move under way."""

    target: str
    number: int
    expires_at_ms: int
    hold: int | Literal["next"] | None


class CrashOut(msgspec.Struct, frozen=True):
    """A generation whose runtime ended although it was not told to."""

    epoch: int
    worker: str
    reason: str


class LiveOut(msgspec.Struct, frozen=True):
    """Everything about a live but its input. `crash` is the latest one that its history still has."""

    live_id: str
    digital_id: str
    room: str
    state: str
    worker: str
    epoch: int
    active: bool
    priority: int
    immovable: bool
    metadata: msgspec.Raw
    config: msgspec.Raw
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
    crash: CrashOut | None = None


class HistoryRow(msgspec.Struct, frozen=True):
    """One generation. Times are the store's in milliseconds, 0 where it never happened.

    `source` is the Worker before. Phases are null where they did not happen or are not known any more: `detect_ms` the
    source's silence until it was called lost, `place_ms` from there to the commit, `wait_ms` of that in line for room,
    `claim_ms` from the commit to the claim, `first_ack_ms` from the claim to the first ack. `reason` is what the Worker
    said of how its runtime ended; empty where it goes on, was told to stop, or went with its Worker.
    """

    epoch: int
    worker: str
    source: str
    cause: str
    why: str
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
    """The live's generations, the current one first."""

    live_id: str
    generations: list[HistoryRow]


class WhyOut(msgspec.Struct, frozen=True):
    """Why the live is where it is, or why it is nowhere.

    `explained` is `then` when this replica made the last choice and remembers it, `now` when the explanation is how the
    choice would be made at this moment.
    """

    live_id: str
    outcome: str
    generation: HistoryRow | None
    explained: Literal["then", "now"]
    explanation: Explanation


class DeadLetter(msgspec.Struct, frozen=True):
    """An item that was dropped as poison. `id` names it by its content, `reason` says what the last one died of."""

    id: str
    kind: str
    boundary: bool
    text: str
    reason: str = ""


class DeadLetters(msgspec.Struct, frozen=True):
    """Dead letters, the oldest first."""

    live_id: str
    items: list[DeadLetter]


class DeadPath(Strict):
    live_id: Id
    letter: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}$")]


class PushedAgain(msgspec.Struct, frozen=True):
    """The item's number in the live's input; null where an earlier try had pushed it already."""

    live_id: str
    seq: int | None


# -- Workers


class WorkerPath(Strict):
    worker: WorkerId


class Blocked(Strict):
    """The Worker's event loop has been blocked for so long, in this place; `tell` makes it an event."""

    blocked_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)]
    frame: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    tell: bool = False


class BlockedOut(msgspec.Struct, frozen=True):
    """Whether it counted as the Worker's beat; not for one that is lost or gone."""

    worker: str
    counted: bool


class WorkersQuery(Strict):
    """Filters narrow the list; `after` is the `next` of the page before."""

    pool: Id | Optional = UNSET
    status: Literal["ready", "new", "cordoned", "draining", "lost", "gone"] | Optional = UNSET
    after: WorkerId | Optional = UNSET
    limit: Limit = PAGE_DEFAULT


class WorkerSummary(msgspec.Struct, frozen=True):
    """A Worker in a list. `status` is `ready` when it takes new lives, else why not."""

    worker: str
    pool: str
    status: str
    load: int
    capacity: int
    starting: int
    labels: str
    beat: int


class WorkerList(msgspec.Struct, frozen=True):
    """One page by id. `next` is null on the last one."""

    workers: list[WorkerSummary]
    next: str | None


class SlotOut(msgspec.Struct, frozen=True):
    """One slot of a Worker."""

    live_id: str
    tenant: str
    number: int
    state: str


class WorkerOut(msgspec.Struct, frozen=True):
    """A Worker and its slots."""

    worker: str
    name: str
    pool: str
    status: str
    mode: str
    load: int
    capacity: int
    starting: int
    cutovers: int
    labels: str
    beat: int
    link: str
    slots: list[SlotOut]


class WorkerMode(msgspec.Struct, frozen=True):
    """The Worker's mode after the call."""

    worker: str
    mode: str


# -- Pools, DigitalIDs


class PoolPath(Strict):
    pool: Id


class DigitalIdPath(Strict):
    digital_id: Id


class DeleteQuery(Strict):
    """`force` deletes what is in use."""

    force: Flag = "0"
