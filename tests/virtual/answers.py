"""The judge of Dispatch's answers: all answers about one live, from whichever replica, fit into the store's order.

A call is open from when it is sent until its answer is there. What the store had of its live meanwhile, step by step,
are the call's versions: an answer must be one of them. So no answer is older than another that was there before its
call was sent. That is also compared by itself, without the model: within one history of the store, an answer never goes
back behind what an earlier one said. A store that was set back begins another history; which one an answer is of is not
known if that happened while its call was open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from dhsched.client.models.lives import Ended, Placed
from dhsched.client.models.lives import Live as LiveOut
from dhsched.errors import Refused
from dhsched.ownership.state import Live

T = TypeVar("T")
STATES = ("open", "closing", "ended")


class Version(NamedTuple):
    """What both the store and a GET say of a live."""

    epoch: int
    worker: str
    claimed: bool
    state: str
    appended: int
    released: int
    acked: int


class Known(NamedTuple):
    """What an application knows for sure after an answer: the least that later ones say. -1 is not known."""

    history: int
    epoch: int = -1
    state: str = "open"
    appended: int = -1
    acked: int = -1


class Call:
    """One open call, the versions of its live since it was sent, and what was known then, in which history."""

    def __init__(self, live: str, known: Known | None, now: Live | None, history: int) -> None:
        self.live, self.known, self.history = live, known, history
        self.versions: list[Live | None] = [now]

    def saw(self, now: Live | None) -> None:
        if now is not self.versions[-1]:
            self.versions.append(now)


class Answers:
    """See the module. `read` returns the store's record of a live now, `wrong` takes a violation."""

    def __init__(self, read: Callable[[str], Live | None], wrong: Callable[[str], None]) -> None:
        self.counts: Counter[str] = Counter()
        self.blind = False
        """The model follows the store no longer: only what answers say of each other is compared."""
        self._read, self._wrong = read, wrong
        self._open: dict[Call, None] = {}
        self._known: dict[str, Known] = {}
        self._history = 0

    # -- the store's order

    def on_step(self) -> None:
        """The store has run a step."""
        for call in self._open:
            call.saw(self._read(call.live))

    def set_back(self) -> None:
        """The store goes on with another history."""
        self._history += 1
        self.on_step()

    # -- calls

    async def ask(self, live: str, where: str, call: Callable[[], Awaitable[T]]) -> T:
        """Await a call about a live, and judge its answer. `where` names who was asked."""
        asked = Call(live, self._known.get(live), self._read(live), self._history)
        self._open[asked] = None
        try:
            answer = await call()
        except Refused as refused:
            del self._open[asked]
            self._refused(asked, where, refused)
            raise
        except BaseException:
            del self._open[asked]
            raise
        del self._open[asked]
        self._answered(asked, where, answer)
        return answer

    def _answered(self, call: Call, where: str, answer: Any) -> None:
        match answer:
            case LiveOut():
                said = Version(*(getattr(answer, name) for name in Version._fields))
                self._held(call, where, f"get {said}", lambda live: version_of(live) == said)
                self._know(call, where, Known(self._history, said.epoch, said.state, said.appended, said.acked))
            case Placed(worker=worker, epoch=epoch):
                self._held(call, where, f"place {worker}@{epoch}", lambda live: is_at(live, worker, epoch))
                later = answer.superseded_by
                if later is not None:
                    what = f"superseded by {later.worker}@{later.epoch}"
                    self._held(call, where, what, lambda live: is_at(live, later.worker, later.epoch))
                self._know(call, where, Known(self._history, epoch), is_new=later is None)
            case Ended(state=state):
                self._held(call, where, f"end {state}", lambda live: live is not None and live.state == state)
                self._know(call, where, Known(self._history, state=state))

    def _refused(self, call: Call, where: str, refused: Refused) -> None:
        match refused.code:
            case "NOT_FOUND":
                self._held(call, where, "NOT_FOUND", lambda live: live is None)
            case "ENDED":
                self._held(call, where, "ENDED", lambda live: live is not None and live.state == "ended")
            case "STALE" if current := refused.problem.get("current"):
                what = f"STALE, now {current['worker']}@{current['epoch']}"
                self._held(call, where, what, lambda live: is_at(live, current["worker"], current["epoch"]))

    def _held(self, call: Call, where: str, what: str, was: Callable[[Live | None], bool]) -> None:
        """An answer is what the store had at some time between the call and the answer."""
        self.counts[what.split(" ", 1)[0]] += 1
        if not self.blind and not any(map(was, call.versions)):
            meanwhile = [version_of(each) for each in call.versions]
            self._wrong(f"answers: {where} said {what} of {call.live}; since the call the store had {meanwhile}")

    def _know(self, call: Call, where: str, said: Known, *, is_new: bool = True) -> None:
        """Compare an answer with what was known when its call was sent, and keep the higher of both."""
        known = call.known
        if call.history != said.history:
            return
        if is_new and known is not None and known.history == said.history and goes_back(known, said):
            self._wrong(f"answers: {where} said {said} of {call.live}, and an earlier answer was {known}")
        other = self._known.get(call.live)
        if other is None or other.history != said.history:
            self._known[call.live] = said
        else:
            self._known[call.live] = Known(
                said.history,
                max(other.epoch, said.epoch),
                max(other.state, said.state, key=STATES.index),
                max(other.appended, said.appended),
                max(other.acked, said.acked),
            )


def version_of(live: Live | None) -> Version | None:
    if live is None:
        return None
    claimed = live.active is not None
    return Version(live.epoch, live.selected, claimed, live.state, live.appended, live.released, live.acked)


def is_at(live: Live | None, worker: str, epoch: int) -> bool:
    return live is not None and (live.selected, live.epoch) == (worker, epoch)


def goes_back(known: Known, said: Known) -> bool:
    """Return whether an answer says less than was known; what it says nothing of is not compared."""
    numbers = ((known.epoch, said.epoch), (known.appended, said.appended), (known.acked, said.acked))
    if any(0 <= now < before for before, now in numbers):
        return True
    tells_state = said.appended >= 0 or said.epoch < 0
    return tells_state and STATES.index(said.state) < STATES.index(known.state)
