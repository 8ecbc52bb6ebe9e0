"""Types that every package uses: ids, generations, the states of slots, lives and Workers, and their checks.

An id is short plain ASCII. Every key of the store, every tag inside a slot table and every space-separated list
inside a record is built from ids, so the alphabet below is what keeps one live from reaching another's keys: it has
no brace (hash tag), no colon (key separator), no `@` (slot tag), no `#` (boot number), no `/` (tenant), no `=`
(candidates that stand equal) and no space.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from dhsched.errors import BadId, BadValue

ID_BYTES_MAX = 64
NUMBER_MAX = 2**50
"""Largest generation, term, revision, item or boot number; a larger one is refused with BadValue or BadId. A Lua script
counts in floating point, which is exact up to 2^53, and may add to a number before it compares."""
TERM_STEP = 2**20
"""Numbers set aside for one term of the store, unless limits say otherwise."""
TERM_MAX = NUMBER_MAX // TERM_STEP - 3
"""The largest term that may end: the numbers of the one after it must all fit."""
ID_PATTERN = r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,63}"  # Documents and `check_id` go by it.
_ID = re.compile(rf"{ID_PATTERN}\Z")


def whole(pattern: str, **more: Any) -> msgspec.Meta:
    """Return the rule that a text fits `pattern` from its first to its last character, as Python and OpenAPI read it.

    In Python `$` also matches before a newline at the end, and OpenAPI has no `\\Z`.
    """
    return msgspec.Meta(pattern=rf"^(?:{pattern})$(?!\n)", **more)


Id = Annotated[str, whole(ID_PATTERN, max_length=64)]
"""An id in a document. Who takes one still checks it (`check_id`): this pattern is what OpenAPI can say of it."""
WorkerId = Annotated[str, whole(rf"{ID_PATTERN}#[0-9]{{1,15}}", description="In a URL, # is %23.")]

SlotState = Literal["reserved", "starting", "running", "vacant", "departing"]
OWNED: tuple[SlotState, ...] = ("starting", "running", "vacant")
"""Slots of a live's current generation."""
WITH_RUNTIME: tuple[SlotState, ...] = ("starting", "running")
"""Owned slots that have a runtime or are about to. Drains and rebalancing move these; recovery moves vacant ones."""
LiveState = Literal["open", "closing", "ended"]
LifetimeReason = Literal["idle", "age"]
LIFETIME_MIN_S, LIFETIME_MAX_S = 1.0, 30 * 86_400.0  # A lifetime outside of these bounds is refused.
Mode = Literal["ready", "cordoned", "draining"]
WorkerStatus = Literal["ready", "new", "cordoned", "draining", "lost", "gone"]
"""Status of a Worker (`ownership.state.status_of`); only a ready Worker takes lives."""
Cause = Literal["create", "reassign", "recover", "drain", "rebalance"]
Kind = Literal["text", "interrupt", "config"]

MARK_BYTES = 8  # Length of an item's mark (ownership/items.py).
BUSY_MAX = 4_096
"""Slots that one report names; a Worker with more names the others in its next reports. Each is a read inside one step,
during which no other step runs."""
NESTING_MAX = 64
"""Levels of nested objects and lists in metadata or a configuration; deeper JSON is refused with BadValue. A later
reader may have less stack left than this process, and Python's parser needs stack for each level."""
PRIORITIES = 4
"""Number of priority classes of lives; 0 is served first. Each class has its own agenda."""
REASON_BYTES_MAX = 500
"""Length of a Worker's reason for the end of a runtime; the rest is cut off."""


@lru_cache(maxsize=65_536)  # The same ids come again and again, and every step checks several.
def _is_id(value: str) -> bool:
    return _ID.match(value) is not None


@lru_cache(maxsize=65_536)
def _is_live(value: str) -> bool:
    tenant, _, live_id = value.partition("/")
    return _ID.match(tenant) is not None and _ID.match(live_id) is not None


@dataclass(frozen=True, slots=True)
class Generation:
    """The only consumer of a live's input: one Worker, in one epoch (paper, 4.1)."""

    worker: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.worker}@{self.epoch}"


class Equals(NamedTuple):
    """Candidates of one Pool with the same rank: the store places the live on the emptiest of them."""

    pool: str
    workers: tuple[str, ...]


Candidates = Sequence[str | Equals]
"""Workers to try, in this order; `Equals` is several with the same rank."""


def written(candidate: str | Equals) -> str:
    """Return a candidate as one string: `w#1`, or `pool=w#1=w#2` for `Equals`."""
    return candidate if isinstance(candidate, str) else "=".join((candidate.pool, *candidate.workers))


def check_id(value: object, what: str) -> str:
    """Return `value` if it is an id, else raise BadId with the reason. `what` names the field in the error."""
    if isinstance(value, str) and len(value) <= ID_BYTES_MAX and _is_id(value):
        return value
    if not isinstance(value, str):
        raise BadId(f"{what} must be a string, not {type(value).__name__}")
    if not value:
        raise BadId(f"{what} is empty; give 1 to {ID_BYTES_MAX} characters of A-Z a-z 0-9 . _ ~ -")
    if len(value) > ID_BYTES_MAX:
        raise BadId(f"{what} has {len(value)} characters, at most {ID_BYTES_MAX} are allowed")
    if not _ID.match(value):
        bad = next(c for i, c in enumerate(value) if not _ID.match(c if i == 0 else "x" + c))
        raise BadId(f"{what} contains {bad!r}; only A-Z a-z 0-9 . _ ~ - are allowed, and no dot at its start")
    return value


def live_key(tenant: str, live_id: str) -> str:
    """Return `tenant/live_id`, the full name by which every step knows a live."""
    return f"{check_id(tenant, 'tenant')}/{check_id(live_id, 'live_id')}"


def check_candidates(candidates: Candidates, pools: Sequence[str], most: int) -> None:
    """Raise BadId or BadValue for candidates or Pools that are not named as they must be, or are more than `most`."""
    named: list[str] = []
    for candidate in candidates:
        if isinstance(candidate, Equals):
            check_id(candidate.pool, "pool")
            if not candidate.workers:
                raise BadValue(f"equal candidates of Pool {candidate.pool} name no Worker")
            named += candidate.workers
        else:
            named.append(candidate)
    for what, given in (("candidates", named), ("Pools", pools)):
        if len(given) > most:
            raise BadValue(f"{len(given)} {what} are given, at most {most} are allowed")
    for worker in named:
        check_worker(worker)
    for pool in pools:
        check_id(pool, "pool")


def if_given(check: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return the check of an argument that may be empty."""
    return lambda value: check(value) if value else None


def check_live(value: object) -> str:
    """Return `value` if it is a live's full name, tenant and id."""
    if isinstance(value, str) and len(value) <= 2 * ID_BYTES_MAX + 1 and _is_live(value):
        return value
    if not isinstance(value, str):
        raise BadId(f"live must be a string, not {type(value).__name__}")
    tenant, slash, live_id = value.partition("/")
    if not slash:
        raise BadId(f"live {value[:80]!r} has no tenant; write tenant/live_id")
    return live_key(tenant, live_id)


def check_worker(value: object) -> str:
    """Return `value` if it is a WorkerID: a name, `#`, and the number of the boot."""
    if not isinstance(value, str):
        raise BadId(f"worker must be a string, not {type(value).__name__}")
    name, hash_, number = value.rpartition("#")
    if not hash_ or not number.isascii() or not number.isdigit() or len(number) > 16 or int(number) > NUMBER_MAX:
        raise BadId(f"worker {value[:80]!r} is not a WorkerID; it looks like name#7 and comes from register_worker")
    check_id(name, "worker name")
    return value


def name_of(worker: str) -> str:
    """Return the name in a WorkerID."""
    return worker.rpartition("#")[0]


def labels_of(text: str) -> frozenset[str]:
    """Return the labels in a text that separates them by commas or spaces."""
    return frozenset(text.replace(",", " ").split())


def check_number(value: object, what: str, low: int = 0, high: int = NUMBER_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadValue(f"{what} is {value!r}; it must be a whole number from {low} to {high}")
    return value


def check_word(value: object, what: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise BadValue(f"{what} is {value!r}; it must be one of {', '.join(allowed)}")


def check_bytes(value: object, what: str, most: int) -> None:
    if not isinstance(value, bytes):
        raise BadValue(f"{what} must be bytes, not {type(value).__name__}")
    if len(value) > most:
        raise BadValue(f"{what} has {len(value)} bytes, at most {most} are allowed")


def check_mark(value: object) -> None:
    """Raise BadValue unless `value` is an item's mark, or empty: a caller that has no item yet has no mark."""
    if not isinstance(value, bytes) or len(value) not in (0, MARK_BYTES):
        raise BadValue(f"an item's mark must be {MARK_BYTES} bytes, or none, not {value!r:.40}")


def check_ack(mark: object, saved: object, bytes_max: int) -> None:
    """Check the arguments of an ack beside its numbers: its item's mark and, if it changed, the saved state."""
    check_mark(mark)
    if saved is not None:
        check_bytes(saved, "saved state", bytes_max)


EMIT_BYTES_MAX = 4_096  # More data in one message of a runtime is refused.
LINE_BYTES_MAX = 1_024  # A longer line of a runtime's log is cut off.


def check_emit(name: object, data: object) -> None:
    """Check one message of a runtime: its name is an id, its data a JSON object of at most EMIT_BYTES_MAX bytes."""
    check_id(name, "name of a message")
    check_bytes(data, "data of a message", EMIT_BYTES_MAX)
    try:
        check_nesting(_object.decode(data), "the data of a message")  # type: ignore[arg-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(f"the data of message {name} must be a JSON object ({error})") from None


_object = msgspec.json.Decoder(dict[str, Any])


def check_text(value: object, what: str) -> None:
    if not isinstance(value, str) or len(value) > 1_024 or any(ord(c) < 32 for c in value):
        raise BadValue(f"{what} must be text of at most 1024 characters without control characters")


def slot_tag(live: str, number: int) -> str:
    """Return the field of a slot table: the live and the number that it was issued."""
    return f"{live}@{number}"


def split_tag(tag: str) -> tuple[str, int]:
    """Return the live and the number of a slot tag."""
    live, _, number = tag.rpartition("@")
    return live, int(number)


def check_nesting(value: dict[str, Any], what: str) -> None:
    """Raise BadValue for JSON with more than NESTING_MAX levels. `what` names the document in the error."""
    level: list[Any] = [value]
    for _ in range(NESTING_MAX):
        inner = (each for holder in level for each in (holder.values() if isinstance(holder, dict) else holder))
        level = [each for each in inner if isinstance(each, (dict, list))]
        if not level:
            return
    raise BadValue(
        f"{what} has objects or lists inside each other more than {NESTING_MAX} levels deep; make it flatter"
    )


def clean_reason(said: str) -> str:
    """Return a Worker's reason for the end of a runtime as it is stored: one printable line of REASON_BYTES_MAX."""
    return (
        " ".join(printable(said[: 4 * REASON_BYTES_MAX]).split())
        .encode()[:REASON_BYTES_MAX]
        .decode(errors="ignore")
        .rstrip()
    )


def printable(text: str) -> str:
    """Return a text without control characters, which could change the terminal of somebody who reads the text."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


STATE_IS_JSON, STATE_IS_BYTES = b"\0j", b"\0b"
"""What a stored state begins with: a JSON value, or bytes that begin with a zero. Other bytes have nothing before."""
