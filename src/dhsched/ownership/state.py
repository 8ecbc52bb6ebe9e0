"""The whole state of one cell as immutable values: the keys of docs/reference/state.md, written as dataclasses.

Steps take and return a `State`. Its maps are never changed in place; `Draft` (draft.py) makes the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

from dhsched.types import Cause, Generation, LifetimeReason, LiveState, Mode, SlotState, WorkerStatus

Hold = int | Literal["next"] | None
K = TypeVar("K")
V = TypeVar("V")


def frozen(mapping: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(mapping))


class Cursors(NamedTuple):
    """The cursors that stand still while a live is stalled: only an ack of the current generation is progress."""

    epoch: int
    acked: int


@dataclass(frozen=True, slots=True)
class Move:
    """The one reservation a live may have: its target, the number issued for it, where input stops before it."""

    target: str
    number: int
    expires: int
    hold: Hold = None


@dataclass(frozen=True, slots=True)
class Row:
    """One generation in a live's history. Times are the store's, 0 for what never happened.

    `reason` is the Worker's account of the end of its runtime, empty if there is none.
    """

    epoch: int
    worker: str
    cause: Cause
    operation: str
    committed_at: int
    claimed_at: int = 0
    first_ack_at: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal entries of a live; `last` is the number of the last one that was ever written (journal.py)."""

    last: int = 0
    entries: tuple[bytes, ...] = ()

    @property
    def dropped(self) -> int:
        """Return the number up to which entries were dropped."""
        return self.last - len(self.entries)


@dataclass(frozen=True, slots=True)
class Live:
    """One session's record (a session is called a live here) and everything that belongs to it."""

    # What the application said at create.
    digital_id: str
    room: str
    priority: int
    immovable: bool
    fingerprint: str
    metadata: bytes
    # Ownership (paper, 4.1).
    epoch: int
    issued: int
    selected: str
    active: str | None
    pull_no: int
    controller: str
    state: LiveState
    current: Row
    # Input cursors: acked <= released <= appended; `pending` is what lies between acked and appended.
    appended: int = 0
    released: int = 0
    acked: int = 0
    acked_mark: bytes = b""  # The mark of item `acked`; empty while that is 0, and once the live has ended.
    forgot: bool = False  # The current generation has items that the store has not: its end blames no item.
    at_boundary: bool = False
    pending: tuple[bytes, ...] = ()
    dropped_interrupt: int = 0
    dropped_end: int = 0
    dropped_poison: int = 0
    config: bytes = b""  # Of the last config item that was acked, or of the create.
    config_next: int = 0  # The number of the last config item that was accepted: pending while above `acked`.
    labels: bytes = b""  # Of the create, or what `describe.lua` has replaced them with; separated by spaces.
    fallback: bytes | None = None  # The last one that a runtime has lived with, while that is not `config`.
    saved: bytes = b""
    saved_seq: int = 0
    journal: Journal = Journal()
    # Moving, stalling, recovering.
    move: Move | None = None
    note: tuple[Cursors, int] | None = None
    stalled: Cursors | None = None
    suspect: tuple[int, int] | None = None
    blamed: tuple[str, ...] = ()  # `W@number` of each generation that was counted there, if its Worker was only lost.
    starts: int = 0
    tries: int = 0
    waits: tuple[str, ...] = ()
    ended_at: int = 0
    # The lifetime (lifetime.py); 0 is no limit.
    created_at: int = 0
    idle_ms: int = 0
    max_ms: int = 0
    seen: tuple[int, int] = (0, 0)  # How much was appended at the last look, and when a look saw that first.
    expired: LifetimeReason | None = None  # Why a look ended it, or is ending it.
    history: tuple[Row, ...] = ()
    producers: Mapping[str, tuple[int, int, int]] = field(default_factory=lambda: frozen({}))
    recent: Mapping[str, int] = field(default_factory=lambda: frozen({}))
    dead: tuple[bytes, ...] = ()
    interrupted: tuple[int, int] = (0, 0)  # The last interrupt, and the item after which it dropped everything.
    emitted: tuple[int, int] = (0, 0)  # Epoch and n of the last message that a runtime emitted.
    emits: tuple[bytes, ...] = ()  # The last messages, as steps/emit.py writes them.

    @property
    def generation(self) -> Generation:
        return Generation(self.selected, self.epoch)

    @property
    def cursors(self) -> Cursors:
        return Cursors(self.epoch, self.acked)

    @property
    def dropped(self) -> int:
        return self.dropped_interrupt + self.dropped_end + self.dropped_poison

    @property
    def held(self) -> bool:
        """Return whether input has stopped at the boundary before a planned move."""
        return self.move is not None and isinstance(self.move.hold, int) and self.released >= self.move.hold


@dataclass(frozen=True, slots=True)
class Worker:
    """One boot of one GPU machine. `load`, `starting` and `cutovers` are differences kept by the writers."""

    name: str
    boot: str
    pool: str
    capacity: int
    labels: str
    mode: Mode = "ready"
    lost: bool = False
    lost_at: int = 0
    gone: bool = False
    beat: int = 0
    load: int = 0
    starting: int = 0
    cutovers: int = 0
    slots_rev: int = 0
    link: str = ""
    starts_create_max: int = 0
    """Start budgets of its Pool as of the Worker's last report, for whichever step needs them."""
    starts_recover_max: int = 0
    """The same for recoveries: never above the other one."""
    cutovers_max: int = 0
    """Moves that may be under way from it, as of its last report; its pace multiplies them."""
    pace: int = 1
    """What its start budgets are multiplied by: it follows how long its starts take."""

    @property
    def free_score(self) -> float | None:
        """Return its score in free:<pool>: load/capacity, minus 1 at one of its start budgets, plus 1 at both.

        So the first entry of all is the emptiest Worker, unless some Workers are at one budget.
        """
        if not self.placeable or self.load >= self.capacity:
            return None
        budgets = (self.pace * self.starts_create_max, self.pace * self.starts_recover_max)
        reached = sum(0 < budget <= self.starting for budget in budgets)
        return (0, -1, 1)[reached] + self.load / self.capacity

    @property
    def placeable(self) -> bool:
        """Return whether the Worker is ready, not lost, not gone, and has reported at least once."""
        return self.status == "ready"

    @property
    def status(self) -> WorkerStatus:
        return status_of(mode=self.mode, lost=self.lost, gone=self.gone, beat=self.beat)


def status_of(*, mode: Mode, lost: bool, gone: bool, beat: int) -> WorkerStatus:
    """Return a Worker's status: gone before lost before the mode that it was set to; new until it has reported."""
    if gone:
        return "gone"
    if lost:
        return "lost"
    return "new" if mode == "ready" and not beat else mode


class Wake(NamedTuple):
    """A hint that a step publishes with what it writes, so that somebody acts now instead of at the next round.

    The channel is `due` (a live is due: to every replica), `dispatch:<replica>` (the Worker `about`, to the replica
    that its last report named) or `infer:<controller>` (the live `about`, to the controller of its latest pull).
    """

    channel: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Home:
    """One uninterrupted time of one primary: its name, the position that the history had when it began, and when."""

    name: str
    pos: int
    at: int


@dataclass(frozen=True, slots=True)
class Cell:
    """What the whole cell counts. `pos` is the number of calls that were answered; only `enter` writes `homes`."""

    term: int = 1
    epoch_base: int = 0
    epoch_floor: int = 0
    rev: int = 0
    placed: int = 0
    workers_issued: int = 0
    pos: int = 0
    pull_base: int = 0
    homes: tuple[Home, ...] = ()

    @property
    def home(self) -> str:
        """The name of the home that was entered last; empty before the first."""
        return self.homes[-1].name if self.homes else ""


SLOT_REVS_MAX = 128  # Slots of a Worker of which it is known when they changed; lua/lib/slot.lua has the same number.


@dataclass(frozen=True, slots=True)
class State:
    """One cell. `slots[W][L@number]`; `slot_revs[W][L@number]` is the revision that last changed the slot, also of
    slots that are gone, of the last SLOT_REVS_MAX; `agenda[class][L]` is when to look; `free[pool][W]` is
    `Worker.free_score`; `listed` is every live, which lists show and a new term walks; `ended` those of them that have
    ended. `wakes` are the hints of the step that made this state: they are no part of the cell, and not compared."""

    cell: Cell = Cell()
    lives: Mapping[str, Live] = field(default_factory=lambda: frozen({}))
    workers: Mapping[str, Worker] = field(default_factory=lambda: frozen({}))
    changed: Mapping[str, int] = field(default_factory=lambda: frozen({}))
    slots: Mapping[str, Mapping[str, SlotState]] = field(default_factory=lambda: frozen({}))
    slot_revs: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: frozen({}))
    free: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: frozen({}))
    waiting: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: frozen({}))
    agenda: Mapping[int, Mapping[str, int]] = field(default_factory=lambda: frozen({}))
    boots: Mapping[str, str] = field(default_factory=lambda: frozen({}))
    blame: Mapping[str, tuple[int, int]] = field(default_factory=lambda: frozen({}))
    listed: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    wakes: frozenset[Wake] = field(default=frozenset(), compare=False)


EMPTY = State()
