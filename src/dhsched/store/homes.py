"""The homes of a cell, as one process has entered them: the entry of its link, and what it knows to be lost.

A home is one uninterrupted time of one primary (ownership/steps/enter.py). On each new connection the process enters,
and is told every home that the data has, with the position at which each began. It remembers the last position that it
was told in each home. Where a later home began below that position, calls that were answered are gone: nobody can bring
them back, so somebody must say so; and say it again where the event that said so is lost as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

from dhsched.errors import StoreIncompatible, StoreRefused
from dhsched.ownership.outcomes import Entered
from dhsched.ownership.state import Home
from dhsched.ownership.steps.enter import HOMES_MAX, JUMP_MIN, JUMP_SPREAD, NAMELESS, kept
from dhsched.store.keys import SCHEMA, Keys
from dhsched.store.link.greeting import RunScript
from dhsched.store.migrations import remedy
from dhsched.store.records.events import Value
from dhsched.store.steps.replies import Reader

SHOWN = 8  # Characters of a home's name in messages and events: enough to tell two apart.


@dataclass(frozen=True, slots=True)
class Loss:
    """Calls that this process was told of in `home`, up to position `told`, of which the data has only `kept`."""

    home: str
    told: int
    kept: int

    @property
    def calls(self) -> int:
        """How many calls of the whole cell are lost at least."""
        return self.told - self.kept


@dataclass(frozen=True, slots=True)
class Entry:
    """One entering: the home, the one before it in the data, and what this process now knows to be lost. `repeated` are
    losses that were said before, in a home that is lost in turn: what was said of them may be lost with it."""

    home: str = ""
    before: str = ""
    again: bool = True
    losses: tuple[Loss, ...] = ()
    repeated: tuple[Loss, ...] = ()

    def events(self) -> Iterator[tuple[Literal["store_entered", "store_lost"], dict[str, Value]]]:
        """Yield what is to be said of it, as kinds and numbers of events: nothing where an old home was found, nor of
        the first home of an empty cell."""
        if not self.again and self.before:
            yield "store_entered", {"home": shown(self.home), "before": shown(self.before)}
        for loss in (*self.losses, *self.repeated):
            numbers = {"told": loss.told, "kept": loss.kept, "calls": loss.calls}
            yield "store_lost", {"home": shown(loss.home), **numbers}


class Homes:
    """See the module. `home` is empty before the first entering."""

    def __init__(self, cell: str, *, draw: Callable[[], int] | None = None) -> None:
        self.home = ""
        self.reader = Reader()
        self.homes: tuple[Home, ...] = ()
        self.losses: list[Loss] = []
        """Everything that this process knows to be lost, the latest last."""
        self.on_entered: list[Callable[[Entry], None]] = []
        self.latest = Entry()
        self._keys = Keys(cell)
        self._draw = draw or random_jump
        self._told: dict[Home, int] = {}
        self._said: list[tuple[Loss, Home]] = []
        """The latest losses, each with the home in which it was said."""

    @property
    def lost_calls(self) -> int:
        """How many calls this process knows to be lost, at least."""
        return sum(loss.calls for loss in self.losses)

    async def enter(self, run: RunScript) -> bytes:
        """Enter on a new connection; return the home, which every script on the connection names."""
        first = "" if self.home else "1"
        try:
            reply = await run("enter", [self._keys.cell], [self._draw(), first, SCHEMA])
        except StoreRefused as refusal:
            raise self._incompatible(refusal) from refusal
        self._entered(self.reader.entered(reply))
        return self.home.encode()

    def lost(self, entered: Entered) -> tuple[Loss, ...]:
        """Return what this process was told and the data does not have. It is returned once."""
        found = []
        for home, told in [*self._told.items()]:
            has = kept(entered.homes, home, told, entered.pos)
            if home.name == NAMELESS or has >= told:
                continue
            if has < 0:
                # The data never had this home: all of it is lost, from where it began.
                has = min(told, home.pos)
                del self._told[home]
            else:
                self._told[home] = has
            if has < told:
                found.append(Loss(home.name, told, has))
        return tuple(found)

    def _unsaid(self, entered: Entered, losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
        """Return the losses that were said in a home whose end is lost, or all of it, or whose end may be lost: events
        are not counted, so where this process was told nothing in a home that is over, nothing shows that the data has
        the event. That the data forgets its oldest homes is no loss."""
        lost_in, oldest, latest = {loss.home for loss in losses}, entered.homes[0].pos, entered.homes[-1]

        def may_be_lost(home: Home) -> bool:
            if home not in entered.homes:
                return home.pos >= oldest
            return home != latest and self._told.get(home, 0) <= home.pos

        return tuple(loss for loss, home in self._said if home.name in lost_in or may_be_lost(home))

    def _entered(self, entered: Entered) -> None:
        if self.homes:
            home = self.homes[-1]
            self._told[home] = max(self._told.get(home, 0), self.reader.pos)
        losses = self.lost(entered)
        self._told = {home: self._told[home] for home in [*self._told][-HOMES_MAX:]}
        repeated = self._unsaid(entered, losses)
        self._said = [row for row in self._said if row[0] not in repeated]
        self._said += [(loss, entered.homes[-1]) for loss in (*losses, *repeated)]
        self._said = self._said[-HOMES_MAX:]
        before = entered.homes[-2].name if len(entered.homes) > 1 else ""
        self.home, self.homes, self.reader.pos = entered.home, entered.homes, 0
        self.losses += losses
        self.latest = Entry(entered.home, before, entered.again, losses, repeated)
        for tell in self.on_entered:
            tell(self.latest)

    def _incompatible(self, refusal: StoreRefused) -> Exception:
        cell, said = self._keys.cell_name, refusal.reply.partition(" ")[2]
        if refusal.code == "SCHEMA":
            return StoreIncompatible(
                f"cell {cell} holds data of schema {said}, and this version of dhsched works with schema {SCHEMA};"
                f" nothing was changed: {remedy(cell, said)}"
            )
        if refusal.code == "NUMBERS":
            return StoreIncompatible(f"cell {cell} has given out too many numbers, up to {said}: begin another cell")
        return refusal


def random_jump() -> int:
    """Return how far the numbers jump where a home begins."""
    return JUMP_MIN + Random().randrange(JUMP_SPREAD)


def shown(home: str) -> str:
    """Return a home's name for people."""
    return home[:SHOWN]
