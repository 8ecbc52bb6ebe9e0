"""The judges of a whole virtual run: those of each of its cells (`judges.py`), and what holds over all cells.

`cells`: a live has a record in the cell of its id only, and no step of another cell names it; a machine runs lives of
one cell at a time; the configuration and the keys are equal in all cells soon after the last fault. `beside`, of calls
for one cell while another one is away, is in beside.py. A run with one cell has the judges of this cell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dhsched.cells.fixed import cell_of
from dhsched.ownership.state import Live
from dhsched.types import live_key
from tests.chaos.load import Told
from tests.virtual.beside import Beside
from tests.virtual.judges import TENANT, CellJudges, Violations
from tests.virtual.loop import VirtualLoop
from tests.virtual.pictures import Pictures
from tests.virtual.runtime import Recorder, machine_of
from tests.virtual.store import StoreServer
from tests.virtual.swarm import Swarm
from tests.virtual.trace import Trace

T = TypeVar("T")


class Judges:
    """See the module."""

    def __init__(self, loop: VirtualLoop, swarm: Swarm, stores: Sequence[StoreServer], trace: Trace) -> None:
        self.violations = Violations(loop, trace)
        self.wrong = self.violations.add
        self.cells = [CellJudges(loop, swarm, each, trace, self.wrong) for each in stores]
        self.granted: dict[tuple[Any, ...], set[tuple[bytes, bytes]]] = defaultdict(set)
        """By live, Worker and epoch: the configuration and the state that a store gave each pull."""
        for each in self.cells:
            each.granted = self.granted
        self.pictures = Pictures(loop, lambda live: self.of(live).record(live), self.wrong)
        self.beside = Beside(loop, lambda live_id: self.of(live_key(TENANT, live_id)).cell, self.wrong)
        self._names = swarm.cell_names
        self._by_name = {each.cell: each for each in self.cells}

    @property
    def several(self) -> bool:
        return len(self.cells) > 1

    def of(self, live: str) -> CellJudges:
        """Return the judges of the cell of a live's id."""
        return self._by_name[cell_of(self._names, live)] if self.several else self.cells[0]

    def at(self, store: StoreServer) -> CellJudges:
        return self._by_name[store.cell]

    @property
    def lives(self) -> Mapping[str, Live]:
        """The records of all lives, as the models have them."""
        if not self.several:
            return self.cells[0].current.state.lives
        return {live: record for each in self.cells for live, record in each.current.state.lives.items()}

    @property
    def steps(self) -> int:
        return sum(each.tally.steps for each in self.cells)

    def is_lost(self, worker: str) -> bool:
        return any(each.is_lost(worker) for each in self.cells)

    def ask(self, live: str, where: str, call: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Await a call about a live, and judge its answer. `where` names who was asked."""
        return self.of(live).answers.ask(live, where, call)

    def begin_above(self, number: int) -> None:
        for each in self.cells:
            each.begin_above(number)

    # -- over all cells

    def opened(self, boot: str, lives: Iterable[str]) -> None:
        """A runtime was opened: these are the lives that its machine runs now."""
        cells = {cell_of(self._names, live) for live in lives}
        if len(cells) > 1:
            at_once = f"{', '.join(sorted(lives))} of cells {', '.join(sorted(cells))}"
            self.wrong(f"cells: machine {machine_of(boot)} runs {at_once} at once")

    def unequal(self) -> str:
        """Return in what the configuration or the keys of two cells differ; empty if they are equal in all."""
        first = self.cells[0].configuration()
        for each in self.cells[1:]:
            for kind, other in each.configuration().items():
                differ = [name for name in {**first[kind], **other} if first[kind].get(name) != other.get(name)]
                if differ:
                    names = ", ".join(name.decode() for name in differ[:5])
                    return f"{kind} of cell {each.cell} differs from that of cell {self.cells[0].cell} in {names}"
        return ""

    # -- now and then, and at the end

    def look_at_store(self) -> None:
        for each in self.cells:
            each.look_at_store()

    def look(self) -> None:
        """Look how long each live has stood still, and what is on air. This is called every few seconds."""
        if not any(each.current.diverged for each in self.cells):
            for each in self.cells:
                each.bounds.look(each.current.state)
            self.pictures.look()

    def at_end(self, told: Mapping[str, Told], recorder: Recorder, hours: float, *, ends: Sequence[float]) -> None:
        for each in self.cells:
            each.at_end(told, recorder, hours, ends=ends)
