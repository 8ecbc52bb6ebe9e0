"""The world of spec/CellWorkers.tla: one machine among cells that forget, explored with the agent's own rules.

When the process registers, which answers it takes, and everything that the agent does with a slot table are the
product's answers (dhsched.cells.workers, dhsched.ownership.agent). The cells are the world's own: a record and a slot
each, as far as this machine sees them.

Projection: the key has every variable of the specification in its order, but for `bad`. The live of cell c is `t/Lc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dhsched.cells import workers
from dhsched.cells.workers import Registration
from dhsched.ownership import agent as agency
from dhsched.ownership.agent import Agent, Depart, Start, Stop
from dhsched.ownership.state import frozen
from spec.configuration import Configuration
from spec.explore import Move
from spec.shapes import changed

NO_SLOT, EMPTY, NO_REG, NO_LATE = ("none", 0), (0, "none", 0), (0, 0), (0, 0, "none", 0)
Key = tuple[Any, ...]
STORE, ISSUED, OWNER, LOSSES, BEHIND, PROC, BOOTS, REG, TABLE, RUNS, FIN, LATE = range(12)


def tag_of(c: int, n: int) -> str:
    return f"t/L{c}@{n}"


def numbers_of(tag: str) -> tuple[int, int]:
    cell, _, number = tag.removeprefix("t/L").partition("@")
    return int(cell), int(number)


def registration(reg: tuple[int, int]) -> Registration | None:
    return Registration(f"c{reg[0]}", f"w#{reg[1]}") if reg != NO_REG else None


class CellWorkers:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = (
        *("store", "issued", "owner", "losses", "behind"),
        *("proc", "boots", "reg", "table", "runs", "fin", "late"),
    )

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        """`strict` has no meaning here: a key is its projection."""
        self.c = configuration
        self.on = configuration.on
        self.cells = range(1, self.c["NC"] + 1)
        self.numbers = range(1, self.c["MaxN"] + 1)
        self.no_table = (NO_SLOT,) * len(self.cells)
        self.no_fin = ((False,) * len(self.numbers),) * len(self.cells)

    def initial(self) -> Key:
        each = len(self.cells)
        nobody = ((0,) * len(self.numbers),) * each
        cells = ((EMPTY,) * each, (0,) * each, nobody, 0, (0, EMPTY))
        return (*cells, False, 0, NO_REG, self.no_table, self.no_table, self.no_fin, NO_LATE)

    def projection(self, key: Key) -> tuple[Any, ...]:
        return key

    def problems(self, key: Key) -> Iterator[str]:
        busy = [c for c in self.cells if key[RUNS][c - 1] != NO_SLOT]
        if len(busy) > self.c["Cap"]:
            yield f"I4: runtimes of cells {busy}"
        running = [c for c in busy if key[RUNS][c - 1][0] == "running" and key[REG] != NO_REG]
        if any(c != key[REG][0] for c in running):
            yield f"Own: runtimes of cells {running}, registered in {key[REG][0]}"
        if busy and not key[PROC]:
            yield f"Ended: runtimes of cells {busy} without a process"

    # -- the agent

    def agent(self, key: Key) -> Agent:
        """What this registration knows: it has begun with nothing, so only its own cell's runtimes are in its book."""
        own = {c for c in self.cells if c == key[REG][0] or key[REG] == NO_REG}
        return Agent(
            self.c["Cap"],
            table=frozen({tag_of(c, n): slot for c, (slot, n) in enumerate(key[TABLE], 1) if n}),
            runs=frozen({tag_of(c, n): phase for c, (phase, n) in enumerate(key[RUNS], 1) if n and c in own}),
            finished=frozenset(tag_of(c, n) for c in self.cells for n in self.numbers if key[FIN][c - 1][n - 1]),
        )

    def after(self, key: Key, agent: Agent) -> Key:
        """The key with what the agent knows now; runtimes that are not in its book stay."""
        fin = tuple(tuple(tag_of(c, n) in agent.finished for n in self.numbers) for c in self.cells)
        table, runs = list(self.no_table), list(self.no_table)
        for into, tags in ((table, agent.table), (runs, agent.runs)):
            for tag, value in tags.items():
                c, n = numbers_of(tag)
                into[c - 1] = (value, n)
        for c in self.cells:
            if key[REG] != NO_REG and c != key[REG][0]:
                runs[c - 1] = key[RUNS][c - 1]
        return put(key, {TABLE: tuple(table), RUNS: tuple(runs), FIN: fin})

    def with_table(self, key: Key, c: int, slot: tuple[str, int]) -> Key:
        table: Any = {tag_of(c, slot[1]): slot[0]} if slot[1] else {}
        return self.after(key, agency.take_table(self.agent(key), home=f"c{c}", term=1, rev=1, table=table))

    # -- steps

    def moves(self, key: Key) -> Iterator[Move]:
        for c in self.cells:
            yield from self.cell_moves(key, c)
        if not key[PROC]:
            if key[BOOTS] < self.c["MaxBoot"]:
                yield "the process begins", put(key, {PROC: True}), ()
            return
        nothing = {REG: NO_REG, TABLE: self.no_table, RUNS: self.no_table, FIN: self.no_fin, LATE: NO_LATE}
        yield "the process ends", put(key, {PROC: False, **nothing}), ()
        if key[LATE] != NO_LATE:
            yield from self.arrives(key)
        yield from self.reports(key) if key[REG] != NO_REG else self.registers(key)
        yield from self.acts(key)

    def cell_moves(self, key: Key, c: int) -> Iterator[Move]:
        boot, slot, n = cell = key[STORE][c - 1]
        issued = key[ISSUED][c - 1]

        def store(after: tuple[int, str, int]) -> dict[int, Any]:
            return {STORE: changed(key[STORE], c, after)}

        if boot and slot == "none" and issued < self.c["MaxN"]:
            given = changed(key[OWNER], c, changed(key[OWNER][c - 1], issued + 1, boot))
            placed = {ISSUED: changed(key[ISSUED], c, issued + 1), OWNER: given}
            yield f"cell {c} places", put(key, {**store((boot, "starting", issued + 1)), **placed}), ()
        if slot == "starting":
            yield f"cell {c} places elsewhere", put(key, store((boot, "departing", n))), ()
        if boot:
            yield f"cell {c} gives the Worker up", put(key, store(EMPTY)), ()
        if "losses" not in self.on or key[LOSSES] == self.c["Forgets"]:
            return
        whose, past = key[BEHIND]
        if not whose and cell != EMPTY:
            yield f"keep cell {c}", put(key, {BEHIND: (c, cell)}), ()
        if whose == c and cell != past:
            yield f"cell {c} forgets", put(key, {**store(past), BEHIND: (0, EMPTY), LOSSES: key[LOSSES] + 1}), ()

    def registers(self, key: Key) -> Iterator[Move]:
        runs = sum(run != NO_SLOT for run in key[RUNS])
        if key[BOOTS] == self.c["MaxBoot"] or not workers.may_register(runs):
            return
        boot = key[BOOTS] + 1
        for c in self.cells:
            begun = {
                BOOTS: boot,
                REG: (c, boot),
                STORE: changed(key[STORE], c, (boot, "none", 0)),
                TABLE: self.no_table,
                FIN: self.no_fin,
            }
            yield f"boot {boot} registers in cell {c}", put(key, begun), ()

    def reports(self, key: Key) -> Iterator[Move]:
        c, boot = key[REG]
        there, slot, n = key[STORE][c - 1]
        if there != boot:
            empty = agency.take_table(self.agent(key), home=f"c{c}", term=1, rev=1, table={})
            yield "the Worker is told GONE", put(self.after(key, empty), {REG: NO_REG}), ()
            return
        yield "a report is answered", self.with_table(key, c, (slot, n)), ()
        if key[LATE] == NO_LATE and n:
            yield "a report is answered late", put(key, {LATE: (c, boot, slot, n)}), ()

    def arrives(self, key: Key) -> Iterator[Move]:
        c, boot, slot, n = key[LATE]
        mine, theirs = registration(key[REG]), registration((c, boot))
        assert theirs is not None
        arrived = put(key, {LATE: NO_LATE})
        if mine is not None and workers.is_own(mine, theirs) and mine != theirs:
            arrived = self.with_table(arrived, c, (slot, n))
        # Of its own registration it is the older one, by its revision; or the next report brings it again.
        yield "a late table arrives", arrived, ()

    def acts(self, key: Key) -> Iterator[Move]:
        agent, boot = self.agent(key), key[REG][1]
        for action in agency.reconcile(agent):
            c, n = numbers_of(action.tag)
            match action:
                case Start():
                    owner = key[OWNER][c - 1][n - 1]
                    wrong = () if owner == boot else (f"Given: {action.tag} of boot {owner} is started by {boot}",)
                    yield f"start {action.tag}", self.after(key, agency.begun(agent, action)), wrong
                case Stop():
                    yield f"stop {action.tag}", self.after(key, agency.stopping(agent, action.tag)), ()
                case Depart():
                    there, _, number = key[STORE][c - 1]
                    given_back = {}
                    if (there, number) == (boot, n):
                        given_back = {STORE: changed(key[STORE], c, (there, "none", 0))}
                    departed = self.after(key, agency.departed(agent, action.tag))
                    yield f"depart {action.tag}", put(departed, given_back), ()
        for tag in agent.runs:
            yield f"{tag} is over", self.after(key, agency.over(agent, tag)), ()


def put(key: Key, values: dict[int, Any]) -> Key:
    """The same state with some variables changed."""
    return tuple(values.get(place, value) for place, value in enumerate(key))
