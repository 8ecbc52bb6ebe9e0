"""The world of spec/Homes.tla: the world of spec/ownership.py on a store that forgets, with homes, and a room.

Projection: the variables of DHSched.tla as spec/ownership.py has them, then those of the specification's own:
    behind, other       states of the store, as `store`
    losses, entered, used, spent, pulled    as the specification says
    tables              per Worker the homes of the agent's table and of the one on its way: the model's Agent.home
    room                per live: home, highest, who may publish, in the order of their names
Pulls jump by as much as they can count in one home, and not by as much as numbers do: `enter` is told one jump.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dhsched.ownership import agent as agency
from dhsched.ownership.draft import Draft
from dhsched.ownership.needs import needs
from dhsched.ownership.steps import STEPS
from dhsched.room import fence as room
from dhsched.types import Generation
from spec import ownership
from spec.canonical import NOW
from spec.configuration import Configuration
from spec.explore import Move
from spec.ownership import Ownership
from spec.shapes import changed, home_id, home_number, live_id, store_by_name
from spec.stores import Edge

ISSUING = ("place", "reserve", "pull", "register_worker")
"""The steps that give out numbers: they may not run before the home is entered. The product refuses more steps then
(`SAME_HOME` has the two that it lets run); nothing here needs it to."""

Key = tuple[Any, ...]
CORE, BEHIND, OTHER, LOSSES, ENTERED, USED, SPENT, PULLED, TABLES, ROOM = range(10)
LATE = "takes a late table"
GIVEN, MADE = 1, 2  # A number was given out; a generation has had it.


class Homes:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = (
        *Ownership.variables,
        *("behind", "other", "losses", "entered", "used", "spent", "pulled", "tables", "room"),
    )

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        self.c = configuration
        self.on = configuration.on
        self.inner = Ownership(configuration, strict=strict)
        self.stores, self.agents = self.inner.stores, self.inner.agents
        self.clean = 0

    def initial(self) -> Key:
        core = self.inner.initial()
        self.clean = core[0]
        lives, numbers = self.stores.lives, self.stores.numbers
        pulls = (self.c["MaxHome"] + 1) * (self.c["MaxPull"] + 2)
        return (
            core,
            self.clean,
            self.clean,
            0,
            True,
            (False,) * self.c["MaxHome"],
            ((0,) * len(numbers),) * len(lives),
            (((False,) * pulls,) * len(numbers),) * len(lives),
            ((0, 0),) * len(self.stores.workers),
            ((frozenset[int](), 0, 0),) * len(lives),
        )

    def projection(self, key: Key) -> tuple[Any, ...]:
        stores = tuple(store_by_name(self.stores.nodes[key[at]].shape) for at in (BEHIND, OTHER))
        numbers = self.stores.numbers
        room = tuple((tuple(n in admitted for n in numbers), high, home) for admitted, high, home in key[ROOM])
        return (*self.inner.projection(key[CORE]), *stores, *key[LOSSES:ROOM], room)

    def problems(self, key: Key) -> Iterator[str]:
        """What a lost history leaves behind is no breach: a runtime without a slot, a generation that comes back."""
        yield from (wrong for wrong in self.inner.problems(key[CORE]) if not wrong.startswith(("Slots", "Final")))
        state = self.stores.nodes[key[CORE][0]].state
        for i, (admitted, high, home) in enumerate(key[ROOM]):
            record = state.lives.get(live_id(i + 1))
            known = key[ENTERED] and home == home_number(state.cell.home)
            if known and record is not None and record.state == "open" and max(admitted | {high}) > record.epoch:
                yield f"Audible: {live_id(i + 1)} is at {record.epoch}, its room heard {high} and admits {admitted}"

    # -- steps

    def moves(self, key: Key) -> Iterator[Move]:
        store, _, released, trouble = key[CORE]
        node = self.stores.nodes[store]
        tired = 0 < self.inner.trouble_max <= trouble
        worse = trouble + 1 if self.inner.trouble_max else 0
        for edge in self.stores.edges(node):
            if (edge.trouble and tired) or (edge.step in ISSUING and not key[ENTERED]):
                continue
            after = worse if edge.trouble else trouble
            counted, wrong = self.count(key, edge)
            for label, agents_after, tables in self.with_agents(edge, key):
                core = (edge.to, agents_after, released, after)
                yield label, put(key, {CORE: core, TABLES: tables, **counted}), (*edge.wrong, *wrong)
        for grant in node.grants:
            label, core_after, wrong = self.inner.release(key[CORE], *grant)
            yield label, put(key, {CORE: core_after}), wrong
        if "agents" in self.on:
            for label, core, tables in self.agent_moves(key, tired, worse):
                yield label, put(key, {CORE: core, TABLES: tables}), ()
        yield from self.losses(key)
        if "room" in self.on:
            yield from self.publishes(key)

    def count(self, key: Key, edge: Edge) -> tuple[dict[int, Any], tuple[str, ...]]:
        """What a step has given out, and whether anybody was given it before."""
        if edge.step not in ISSUING:
            return {}, ()
        spent, pulled, wrong = key[SPENT], key[PULLED], []
        before, after = self.stores.nodes[key[CORE][0]].state, self.stores.nodes[edge.to].state
        for i in self.stores.lives:
            old, new = before.lives.get(live_id(i)), after.lives.get(live_id(i))
            if new is None or new is old:
                continue
            if old is None or new.issued != old.issued:
                wrong += [f"Twice: number {new.issued}"] if spent[i - 1][new.issued - 1] else []
                spent = changed(spent, i, changed(spent[i - 1], new.issued, GIVEN))
            if old is None or new.epoch != old.epoch:
                wrong += [f"Twice: generation {new.epoch}"] if spent[i - 1][new.epoch - 1] == MADE else []
                spent = changed(spent, i, changed(spent[i - 1], new.epoch, MADE))
            if "connections" in self.on and new.active and (old is None or new.pull_no != old.pull_no):
                row = pulled[i - 1][new.epoch - 1]
                wrong += [f"Twice: pull {new.pull_no} of {new.epoch}"] if row[new.pull_no - 1] else []
                row = changed(row, new.pull_no, True)
                pulled = changed(pulled, i, changed(pulled[i - 1], new.epoch, row))
        return {SPENT: spent, PULLED: pulled}, tuple(wrong)

    def with_agents(self, edge: Edge, key: Key) -> Iterator[tuple[str, tuple[int, ...], tuple[Any, ...]]]:
        store, agents, _, _ = key[CORE]
        tables, w = key[TABLES], edge.reporter
        if not w or "agents" not in self.on:
            for label, after in self.inner.with_agents(edge, store, agents):
                yield label, after, tables
            return
        index, home = agents[w - 1], home_number(self.stores.nodes[store].state.cell.home)
        yield edge.label, agents, tables
        if self.agents.nodes[index].proc != "on":
            return
        table = self.stores.nodes[store].tables[w - 1]
        if self.takes(index, tables[w - 1][0], home, newer=True):
            taken = changed(agents, w, self.agents.take(index, table))
            yield f"{edge.label}, table taken", taken, changed(tables, w, (home, tables[w - 1][1]))
        if "late" in self.on:
            on_its_way = changed(agents, w, self.agents.send(index, table))
            yield f"{edge.label}, table on its way", on_its_way, changed(tables, w, (tables[w - 1][0], home))

    def takes(self, index: int, have: int, home: int, *, newer: bool) -> bool:
        """Whether the agent takes a table of this home: revisions are explored only as older and newer."""
        agent = replace(self.agents.nodes[index].agent, home=home_id(have), rev=2)
        took = agency.take_table(agent, home=home_id(home), term=0, rev=3 if newer else 1, table={})
        return took.rev != 2

    def agent_moves(self, key: Key, tired: bool, worse: int) -> Iterator[tuple[str, ownership.Key, tuple[Any, ...]]]:
        store, agents, released, trouble = key[CORE]
        for w, index in enumerate(agents, 1):
            node = self.agents.nodes[index]
            if node.proc != "on":
                continue
            for label, to, costs in self.agents.edges(index):
                if not (costs and tired) and label != LATE:
                    core = (store, changed(agents, w, to), released, worse if costs else trouble)
                    yield f"w{w} {label}", core, key[TABLES]
            have, late = key[TABLES][w - 1]
            if node.wire.table is not None and self.takes(index, have, late, newer=node.wire.fresh == "new"):
                taken = self.agents.take(index, node.wire.table)
                wire = replace(self.agents.nodes[taken].wire, table=None, fresh="no")
                to = self.agents.add("on", self.agents.nodes[taken].agent, wire)
                core = (store, changed(agents, w, to), released, trouble)
                yield f"w{w} {LATE}", core, changed(key[TABLES], w, (late, 0))

    def losses(self, key: Key) -> Iterator[Move]:
        store, agents, _, trouble = key[CORE]
        nobody = tuple((0, 0, 0) for _ in self.stores.lives)
        if key[LOSSES] < self.c["Forgets"]:
            if key[BEHIND] == self.clean != store:
                yield "a replica stays here", put(key, {BEHIND: store}), ()
            back = {BEHIND: self.clean, LOSSES: key[LOSSES] + 1}
            if key[ENTERED] and store != key[BEHIND]:
                core = (key[BEHIND], agents, nobody, trouble)
                other = store if "two" in self.on else self.clean
                yield "forget", put(key, {**back, CORE: core, ENTERED: False, OTHER: other}), ()
            if key[ENTERED] and key[OTHER] != self.clean:
                core = (key[OTHER], agents, nobody, trouble)
                yield "back to the other primary", put(key, {**back, CORE: core, OTHER: self.clean}), ()
        if not key[ENTERED]:
            yield from self.enters(key)

    def enters(self, key: Key) -> Iterator[Move]:
        store, *rest = key[CORE]
        node = self.stores.nodes[store]
        before = node.state
        for b, used in enumerate(key[USED], 1):
            if used or b <= home_number(before.cell.home):
                continue
            jump = b * self.c["Step"] - max(before.cell.epoch_base, before.cell.epoch_floor)
            after, _ = STEPS["enter"](before, NOW, self.stores.limits, server=home_id(b), jump=jump)
            pulls = b * (self.c["MaxPull"] + 2) if after.cell.pull_base > before.cell.pull_base else 0
            after = replace(after, cell=replace(after.cell, pull_base=pulls))
            wrong = [
                f"Quiet: {live} is touched by the home that begins"
                for live in before.lives
                if needs(Draft(after, NOW, self.stores.limits), live)
                != needs(Draft(before, NOW, self.stores.limits), live)
            ]
            to = self.stores.add(after, node.registered, node)
            entered = {CORE: (to, *rest), ENTERED: True, USED: changed(key[USED], b, True)}
            yield f"enter home {b}", put(key, entered), tuple(wrong)

    def publishes(self, key: Key) -> Iterator[Move]:
        """Dispatch is asked about a publisher; a publisher is heard, by the rules of room/fence.py."""
        state = self.stores.nodes[key[CORE][0]].state
        home = home_number(state.cell.home)
        for i in self.stores.lives:
            admitted, high, known = key[ROOM][i - 1]
            fence = room.Fence(f"h{known}", high, admitted)
            for n in sorted(admitted):
                yield f"room hears {n}", self.with_room(key, i, room.hear(fence, n, keyframe=False)[0]), ()
            record = state.lives.get(live_id(i))
            if record is None or record.state != "open":
                continue
            for n, spent in enumerate(key[SPENT][i - 1], 1):
                if spent:
                    asking = Generation(record.selected, n)
                    asked, _ = room.admit(fence, asking, record.generation, home=f"h{home}")
                    yield f"room asks about {n}", self.with_room(key, i, asked), ()

    def with_room(self, key: Key, i: int, fence: room.Fence) -> Key:
        heard = (fence.admitted, fence.highest, home_number(fence.home))
        return put(key, {ROOM: changed(key[ROOM], i, heard)})


def put(key: Key, values: dict[int, Any]) -> Key:
    """The same state with some parts changed."""
    return tuple(values.get(place, value) for place, value in enumerate(key))
