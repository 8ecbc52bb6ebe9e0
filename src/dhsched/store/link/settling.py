"""Settled replies: nobody is told what a promotion can take back.

Theory of operation. With `replicas=N` in the store's URL, the link sends its calls in batches, and behind each batch,
in the same write:

| command | what it says |
|---|---|
| `settle` | a script that writes in the home that the connection greeted. It is refused in any other |
| `WAIT N ms` | how many replicas have that write, and all before it; with `fsync=1` also WAITAOF: have it on disk |
| `same_home` | a script that compares the server's name once more: WAIT counts by offsets, and knows nothing of homes |

One batch is in flight at a time: calls that come meanwhile wait unsent, and can still be given up as not run. The
replies of a batch are kept until the last of these is answered. Then all of them are passed on in their order, or every
call fails as unknown, because its effect may or may not survive the next promotion. The caller repeats the call with
the same ids.

At once go: refusals, because what was refused has written nothing that a caller could rely on; replies to calls that
write nothing (`AtOnce`); confirmations of subscriptions, and messages. The `enter` of a greeting is not settled by
itself: nothing is told in the new home before a batch is, and WAIT for that batch counts replicas that have all before
it. If a promotion loses the home before, only its numbers are gone, and no home gives out the numbers of another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dhsched.durations import Durations
from dhsched.errors import StoreRefused, StoreUnavailable
from dhsched.store.link.address import Address
from dhsched.store.link.connect import LinkSettings
from dhsched.store.link.wire import ADVICE, NO_TAIL, Arg, Call, Wire, pack

log = logging.getLogger(__name__)

REPLY_SHOWN_CHARS = 80
REPAIR = "start or repair the missing replicas, or lower replicas=N in the store's URL"


# -- what is required, and whether a batch has it


@dataclass(frozen=True, slots=True)
class Settle:
    """The names of two scripts that are run behind each batch: one writes, one only compares."""

    writes: str
    compares: str

    def packed(self, shas: Mapping[str, bytes], key: Arg | None) -> tuple[bytes, bytes]:
        """Return the two commands as they are sent, without the home that the wire puts at their end."""
        keys = () if key is None else (key,)
        written, compared = (
            pack((b"EVALSHA", shas[name], len(keys), *keys, b""))[:NO_TAIL] for name in (self.writes, self.compares)
        )
        return written, compared


@dataclass(frozen=True, slots=True)
class Required:
    """How many replicas must have a batch, within how long, and whether on disk, there and here."""

    replicas: int
    fsync: bool
    within_ms: int

    @property
    def waits(self) -> list[tuple[str, int, int] | tuple[str, int, int, int]]:
        """Return the commands that wait for the replicas; the answer to the last one counts.

        A replica tells what it has on disk when it is asked, before it has written what it got with the question, and
        then once a second. So WAITAOF would take a second; behind WAIT it asks when the replica has written.
        """
        if not self.fsync:
            return [("WAIT", self.replicas, self.within_ms)]
        half_ms = max(1, self.within_ms // 2)
        on_disk = ("WAITAOF", 1, self.replicas, half_ms)
        return [("WAIT", self.replicas, half_ms), on_disk] if self.replicas else [on_disk]


@dataclass(frozen=True, slots=True)
class Result:
    """How one batch ended: how many replicas had it, after how long, and why it is not settled; empty if it is."""

    replicas: int
    seconds: float
    reason: str

    @property
    def settled(self) -> bool:
        return not self.reason


def judge(required: Required, answers: Sequence[Any], seconds: float) -> Result:
    """Return how a batch ended, from the answers to the commands behind it."""
    asked = ["the write", *(each[0] for each in required.waits), "the comparison"]
    for what, answer in zip(asked, answers, strict=True):
        if isinstance(answer, StoreRefused):
            shown = answer.reply[:REPLY_SHOWN_CHARS].rstrip(".")
            advice = ADVICE.get(answer.code, "see its log")
            return Result(0, seconds, f"{what} that settles its batch was refused ({shown}): {advice}")
    here, reached = answers[-2] if required.fsync else (1, answers[-2])
    had = f"had its batch{' on disk' if required.fsync else ''} within {required.within_ms} ms"
    if reached < required.replicas:
        return Result(reached, seconds, f"{reached} of {required.replicas} replicas {had}: {REPAIR}")
    return Result(reached, seconds, "" if here else f"the primary has not {had}: see why its disk is slow")


# -- the batches


class Marker(Call):
    """One of the commands behind a batch. It has no caller: its answer is the batch's."""

    __slots__ = ()

    def fail(self, error: Exception) -> None:
        """Do nothing: nobody waits for this command alone."""


class Settling:
    """Sends batches and passes their replies on when they are settled; see the module.

    `scripts` are the two scripts behind each batch as they are sent; `after_refusal` gets each refusal of a command
    behind a batch.
    """

    def __init__(
        self,
        address: Address,
        settings: LinkSettings,
        scripts: tuple[bytes, bytes],
        after_refusal: Callable[[StoreRefused], None],
    ) -> None:
        self.required = Required(address.replicas, address.fsync, settings.settle_ms)
        self.last: Result | None = None
        self.seconds = Durations()
        """From the write of each batch that was settled to its last answer."""
        self.unsettled_calls = 0
        """Calls that ran, and whose batch was not settled in time."""
        self.answered: list[tuple[Call, Any]] = []
        """Calls of the batch in flight with their replies, which are not passed on yet."""
        self.waits = False
        """Whether a batch is in flight."""
        self._store = address.redacted()
        self._patience_s = settings.deadline_s + settings.settle_ms / 1000
        self._after_refusal = after_refusal
        self._refused: Callable[[Call, StoreRefused], None]
        self._loop = asyncio.get_running_loop()
        self._commands = self._markers(*scripts)
        self._wire: Wire | None = None
        self._sent_at = 0.0
        self._answers: list[Any] = []
        self._unsettled_since: float | None = None

    @property
    def unsettled_s(self) -> float | None:
        """Return for how long no batch was settled; None if the last one was, or there was none yet."""
        return None if self._unsettled_since is None else self._loop.time() - self._unsettled_since

    @property
    def trouble(self) -> str:
        """Return why the store's answers cannot be passed on now, as a sentence; empty if they can."""
        if (unsettled_s := self.unsettled_s) is None or self.last is None:
            return ""
        return f"the store's answers are unsettled for {unsettled_s:.1f} s; of the last call, {self.last.reason}"

    def adopt(self, wire: Wire) -> Callable[[list[Call]], int]:
        """Take the replies and refusals of a new connection; return the function that sends a batch on it."""
        self._wire = wire
        self._refused = wire.on_refusal
        wire.on_reply = self._on_reply
        wire.on_refusal = self._on_refusal
        return self.send

    def send(self, calls: list[Call]) -> int:
        """Send a batch, with the commands behind it unless it has nothing to settle. Return the bytes sent."""
        assert self._wire is not None and not self.waits
        if all(type(call) is not Call for call in calls):
            return self._wire.send(calls)
        self.waits = True
        self._sent_at = self._loop.time()
        for command in self._commands:
            command.deadline = self._sent_at + self._patience_s
        return self._wire.send([*calls, *self._commands])

    def sweep(self, now: float) -> float:
        """Fail the calls past their deadline that have a reply; return the nearest deadline of the others."""
        nearest = float("inf")
        for call, _ in self.answered:
            if call.deadline <= now:
                call.fail(self._unknown(call, "its deadline passed before it was settled"))
            elif call.deadline < nearest and not call.future.done():
                nearest = call.deadline
        return nearest

    def lost(self, reason: str) -> None:
        """Fail the calls that have a reply: their connection was lost before their batch was settled."""
        self.waits = False
        self._answers.clear()
        for call, _ in self._taken():
            call.fail(self._unknown(call, f"the connection was lost before it was settled ({reason})"))

    def _on_reply(self, call: Call, reply: Any) -> None:
        kind = type(call)
        if kind is Call:
            self.answered.append((call, reply))
        elif kind is Marker:
            self._note(reply)
        elif not call.future.done():
            call.future.set_result(reply)

    def _on_refusal(self, call: Call, refusal: StoreRefused) -> None:
        if type(call) is not Marker:
            self._refused(call, refusal)
            return
        assert self._wire is not None
        self._after_refusal(refusal)
        self._note(refusal)
        if self.waits and self._wire.leaving is not None:
            self._wire.drop(self._wire.leaving)  # Nothing of the batch can be told, whatever WAIT will count.

    def _note(self, answer: Any) -> None:
        self._answers.append(answer)
        if len(self._answers) == len(self._commands):
            now = self._loop.time()
            result = judge(self.required, self._answers, now - self._sent_at)
            self._answers.clear()
            self._finish(result, now)

    def _finish(self, result: Result, now: float) -> None:
        assert self._wire is not None
        self.waits = False
        self.last = result
        calls = self._taken()
        if result.settled:
            self.seconds.add(result.seconds)
            if self._unsettled_since is not None:
                log.warning("store %s settles again, after %.1f s", self._store, now - self._unsettled_since)
                self._unsettled_since = None
            for call, reply in calls:
                if call.future.done():
                    self._wire.late_replies += 1
                else:
                    call.answer(reply)
        else:
            if self._unsettled_since is None:
                log.warning("store %s does not settle: %s", self._store, result.reason)
                self._unsettled_since = now
            self.unsettled_calls += len(calls)
            for call, _ in calls:
                call.fail(self._unknown(call, result.reason))
        # The callers that were told run first, in this tick: what they call now goes along in the next batch.
        self._loop.call_soon(self._wire.on_writable)

    def _markers(self, written: bytes, compared: bytes) -> list[Marker]:
        """Return the commands behind each batch. Only one batch is in flight, so all batches share them."""
        nobody: asyncio.Future[Any] = self._loop.create_future()
        return [
            Marker(nobody, written, "settle", 0.0, script=True),
            *(Marker(nobody, pack(each), each[0], 0.0, script=False) for each in self.required.waits),
            Marker(nobody, compared, "settle", 0.0, script=True),
        ]

    def _taken(self) -> list[tuple[Call, Any]]:
        calls, self.answered = self.answered, []
        return calls

    def _unknown(self, call: Call, reason: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{call} ran on store {self._store}, and may be lost by a promotion: {reason}; repeat it with the same "
            "operation id",
            unknown=True,
        )
