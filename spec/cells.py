"""The world of spec/Cells.tla: a bucket that moves between cells that forget, explored with the rules of dhsched.cells.

What a cell answers, where a create goes next, what a mover decides, what each step of a move writes, and which live is
a stray are the product's answers. A cell that forgets, the numbers that it gives out and who still knows which map are
the world's own; what a home does to numbers is explored in homes.py.

Projection: the key has every variable of the specification in its order, but for `bad`. A cell's record is a tuple in
the order of its fields' names. Cells are c1, c2, ...; version v of the map is the `number` of its Version.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from dhsched.cells import buckets, creates, moves
from dhsched.cells.buckets import Absent, Bucket, Elsewhere, Refused
from dhsched.cells.creates import Again, Answered, Call, Question
from dhsched.cells.maps import ANNOUNCE_WAIT_S, CellMap, Row, Version
from spec.configuration import Configuration
from spec.explore import Move
from spec.shapes import changed

BUCKET = 7  # The one of this world.
IDLE, NOTHING = ("idle", 0, 0), ("no", 0, 0)
Phase = tuple[str, int, int]
Key = tuple[Any, ...]
CELLS, HOMES, USED, LOSSES, BEHIND, REVIVED, DISP, TODO, GIVEN = range(9)


class Kept(NamedTuple):
    """What one cell keeps, in the order of the names."""

    asks: bool
    base: int
    by: int
    map: int
    num: int
    own: str
    st: str


def announces(m: int) -> int:
    return 2 * (m - 1)


def next_number(cells: tuple[Kept, ...], c: int) -> int:
    """The number that cell c gives out next: its own base, whatever other cells have given out."""
    return cells[c - 1].base + 1


class Cells:
    """`World` for spec/explore.py."""

    variables: tuple[str, ...] = (
        *("cells", "homes", "used", "losses", "behind", "revived"),
        *("disp", "todo", "given"),
    )

    def __init__(self, configuration: Configuration, *, strict: bool = False) -> None:
        """`strict` has no meaning here: a key is its projection."""
        self.c = configuration
        self.on = configuration.on
        self.numbers = range(1, self.c["NC"] + 1)
        self.map = cache(self.make_map)

    # -- names

    def cell(self, m: int) -> int:
        count: int = self.c["NC"]
        return (m - 1) % count + 1

    def name(self, m: int) -> str:
        return f"c{self.cell(m)}" if m else ""

    def make_map(self, v: int) -> CellMap:
        m = (v + 1) // 2
        row = Row(self.name(m), m, was=self.name(m - 1), next=self.name(m + 1) if v % 2 == 0 else "")
        return CellMap(Version(0, v, 0), {BUCKET: row})

    def bucket(self, kept: Kept) -> Bucket:
        match kept.own:
            case "mine":
                return Bucket("mine", kept.by, self.name(kept.by - 1) if kept.asks else "")
            case "away":
                return Bucket("away", kept.by, self.name(kept.by))
            case _:
                return Bucket("none", kept.by)

    def written(self, kept: Kept, bucket: Bucket | Refused) -> Kept:
        if isinstance(bucket, Refused):
            return kept
        after = kept._replace(own=bucket.state, by=bucket.by, asks=bool(bucket.asks))
        if self.bucket(after) != bucket:
            raise AssertionError(f"{bucket} is written as {after}")
        return after

    # -- states

    def first(self, c: int) -> int:
        if "fixed" in self.on:
            return int(self.c["MaxHome"]) if c == 1 else c - 2
        return c - 1

    def fresh(self, c: int) -> Kept:
        base = self.first(c) * self.c["Step"]
        return Kept(False, base, int(c == 1), 1, 0, "mine" if c == 1 else "none", "none")

    def initial(self) -> Key:
        blocks = range(self.c["MaxHome"] + 1)
        taken = {self.first(c) for c in self.numbers}
        return (
            tuple(self.fresh(c) for c in self.numbers),
            tuple(self.first(c) for c in self.numbers),
            tuple(b in taken for b in blocks),
            0,
            (0, self.fresh(1)),
            (False,) * self.c["NC"],
            ((1, IDLE),) * self.c["ND"],
            (NOTHING,) * self.c["NM"],
            (False,) * (len(blocks) * self.c["Step"]),
        )

    def projection(self, key: Key) -> tuple[Any, ...]:
        return key

    def problems(self, key: Key) -> Iterator[str]:
        cells: tuple[Kept, ...] = key[CELLS]
        having = [c for c in self.numbers if cells[c - 1].st == "open" and not key[REVIVED][c - 1]]
        if len(having) > 1:
            yield f"NotTwo: cells {having} have the live"
        mine = [c for c in self.numbers if cells[c - 1].own == "mine"]
        strays = [c for c in self.numbers if self.is_stray(cells, c)]
        if not key[LOSSES] and len(mine) > 1:
            yield f"OneOwner: cells {mine} have the bucket"
        if not key[LOSSES] and strays:
            yield f"Quiet: the live of cells {strays} is to be ended"
        for c in mine:
            if cells[c - 1].map < announces(cells[c - 1].by):
                yield f"Named: cell {c} has the bucket by move {cells[c - 1].by}, and map {cells[c - 1].map}"

    # -- steps

    def moves(self, key: Key) -> Iterator[Move]:
        for d in range(1, self.c["ND"] + 1):
            yield from self.creates(key, d)
            yield from self.looks(key, d)
        for r in range(1, self.c["NM"] + 1):
            yield from self.acts(key, r) if key[TODO][r - 1] != NOTHING else self.decides(key, r)
        for c in self.numbers:
            yield from self.changes(key, c)
            if c in self.c["Forgetful"] and key[LOSSES] < self.c["Forgets"]:
                yield from self.losses(key, c)

    def creates(self, key: Key, d: int) -> Iterator[Move]:
        v, (phase, m, home) = key[DISP][d - 1]
        if phase == "idle":
            if not v:
                return
            row = self.map(v).rows[BUCKET]
            yield from self.calls(key, d, creates.first_call(row), key[HOMES])
            return
        yield f"replica {d} gives up", self.goes(key, d, IDLE), ()
        call = Call(self.name(m), m, vouched=phase == "new")
        if phase == "ask":
            yield from self.asks(key, d, call)
        elif home == key[HOMES][self.cell(m) - 1]:
            yield from self.calls(key, d, call, changed(key[HOMES], self.cell(m), home))
        else:
            yield f"replica {d} is told HOME", self.goes(key, d, IDLE), ()

    def calls(self, key: Key, d: int, call: Call, named: tuple[int, ...]) -> Iterator[Move]:
        c = self.cell(call.by)
        kept: Kept = key[CELLS][c - 1]
        bucket = self.bucket(kept)
        answer = buckets.answer_create(bucket, by=call.by, has=kept.st != "none", vouched=call.vouched)
        row = self.map(key[DISP][d - 1][0]).rows[BUCKET]
        label = f"replica {d} calls cell {c} by move {call.by}"
        match creates.after_call(row, call, answer):
            case Answered():
                yield from self.takes(key, d, c, label)
            case Question(_, by):
                yield f"{label}, and is to ask", self.goes(key, d, ("ask", by, named[c - 1])), ()
            case Call(_, by):
                yield f"{label}: not yet", self.goes(key, d, ("old", by, named[self.cell(by) - 1])), ()
            case Again():
                yield f"{label}: {answer}", self.goes(key, d, IDLE), ()

    def asks(self, key: Key, d: int, call: Call) -> Iterator[Move]:
        question = Question(self.name(call.by - 1), call.by)
        old = self.cell(call.by - 1)
        kept: Kept = key[CELLS][old - 1]
        answer = buckets.answer_question(self.bucket(kept), by=call.by, has=kept.st != "none")
        label = f"replica {d} asks cell {old}: {answer}"
        match creates.after_question(call, question, answer):
            case Answered():
                yield label, self.goes(key, d, IDLE), self.tells(key, old)
            case Call(_, by):
                assert isinstance(answer, Absent)
                yield label, self.goes(key, d, ("new", by, key[DISP][d - 1][1][2])), ()
            case _:
                yield label, self.goes(key, d, IDLE), ()

    def takes(self, key: Key, d: int, c: int, label: str) -> Iterator[Move]:
        cells: tuple[Kept, ...] = key[CELLS]
        kept, wrong = cells[c - 1], self.tells(key, c)
        if kept.st != "none":
            yield f"{label}: it is there", self.goes(key, d, IDLE), wrong
        elif kept.base < (key[HOMES][c - 1] + 1) * self.c["Step"]:
            n = next_number(cells, c)
            if key[GIVEN][n - 1]:
                wrong = (f"Twice: {n} was given out before", *wrong)
            after = {
                CELLS: changed(cells, c, kept._replace(st="open", num=n)),
                GIVEN: changed(key[GIVEN], n, True),
            }
            yield f"{label}: created as {n}", put(self.goes(key, d, IDLE), after), wrong

    def tells(self, key: Key, c: int) -> tuple[str, ...]:
        others = [x for x in self.numbers if x != c and key[CELLS][x - 1].st == "open" and not key[REVIVED][x - 1]]
        return (f"Same: cell {c} answers, and cells {others} have the live",) if others else ()

    def goes(self, key: Key, d: int, phase: Phase) -> Key:
        return put(key, {DISP: changed(key[DISP], d, (key[DISP][d - 1][0], phase))})

    def looks(self, key: Key, d: int) -> Iterator[Move]:
        known, phase = key[DISP][d - 1]
        if phase != IDLE:
            return
        copies = {kept.map for kept in key[CELLS]}
        for v in sorted(copies) if "alone" in self.on else (max(copies),):
            yield f"replica {d} reads map {v}", put(key, {DISP: changed(key[DISP], d, (v, IDLE))}), ()
        if known:
            yield f"the map of replica {d} is too old", put(key, {DISP: changed(key[DISP], d, (0, IDLE))}), ()

    def decides(self, key: Key, r: int) -> Iterator[Move]:
        cells: tuple[Kept, ...] = key[CELLS]
        empty = [kept.st == "none" for kept in cells]
        readings = {
            f"c{c}": moves.Reading(self.bucket(kept), self.map(kept.map), empty[c - 1], home=str(key[HOMES][c - 1]))
            for c, kept in enumerate(cells, 1)
        }
        m = self.map(max(kept.map for kept in cells)).rows[BUCKET].moving
        old = all(known == 0 or known >= announces(m) for known, _ in key[DISP])
        for want in ("", self.name(m + 1)) if m < self.c["MaxMove"] else ("",):
            announced_s = ANNOUNCE_WAIT_S if old else 0.0
            for action in moves.plan(readings, BUCKET, announced_s=announced_s, want=want)[:1]:
                if not isinstance(action, moves.CopyMap | moves.Wait):
                    more = 0
                    if isinstance(action, moves.Settle):
                        more = int(action.home)
                    elif isinstance(action, moves.Close):
                        more = int(action.cell[1:])
                    todo = (type(action).__name__.lower(), action.by, more)
                    yield f"mover {r} decides {action}", put(key, {TODO: changed(key[TODO], r, todo)}), ()

    def acts(self, key: Key, r: int) -> Iterator[Move]:
        what, m, more = key[TODO][r - 1]
        cells: tuple[Kept, ...] = key[CELLS]
        c = more if what == "close" else self.cell(m) if what in ("open", "settle") else 1
        kept = cells[c - 1]
        bucket = self.bucket(kept)
        match what:
            case "announce":
                after = kept._replace(map=max(kept.map, announces(m)))
            case "publish":
                after = kept._replace(map=max(kept.map, 2 * m - 1))
            case "close":
                after = self.written(kept, buckets.close(bucket, by=m, to=self.name(m)))
            case "open":
                opened = buckets.open_bucket(bucket, by=m, source=self.name(m - 1))
                # A repeated open writes nothing: the bucket may have settled since.
                after = kept if opened == bucket else self.written(kept, opened)
                if not isinstance(opened, Refused) and after != kept:
                    after = after._replace(map=max(kept.map, announces(m)))
            case _:
                settled = more == key[HOMES][c - 1]
                after = self.written(kept, buckets.settle(bucket, by=m)) if settled else kept
        done = {CELLS: changed(cells, c, after), TODO: changed(key[TODO], r, NOTHING)}
        yield f"mover {r} does {what} {m}", put(key, done), ()

    def changes(self, key: Key, c: int) -> Iterator[Move]:
        cells: tuple[Kept, ...] = key[CELLS]
        kept = cells[c - 1]
        newest = max(each.map for each in cells)
        if kept.map < newest:
            yield (
                f"map {newest} is copied to cell {c}",
                put(key, {CELLS: changed(cells, c, kept._replace(map=newest))}),
                (),
            )
        not_revived = changed(key[REVIVED], c, False)
        ended = {CELLS: changed(cells, c, kept._replace(st="ended")), REVIVED: not_revived}
        if kept.st == "open" and "ends" in self.on:
            yield f"the live of cell {c} ends", put(key, ended), ()
        if self.is_stray(cells, c):
            yield f"cell {c} ends its stray", put(key, ended), ()
        if kept.st == "ended":
            swept = kept._replace(st="none", num=0, base=max(kept.base, kept.num))
            yield f"cell {c} sweeps", put(key, {CELLS: changed(cells, c, swept), REVIVED: not_revived}), ()

    def is_stray(self, cells: tuple[Kept, ...], c: int) -> bool:
        here = self.bucket(cells[c - 1])
        theirs = (Elsewhere(self.bucket(kept), kept.st == "open") for x, kept in enumerate(cells, 1) if x != c)
        return cells[c - 1].st == "open" and any(buckets.is_stray(here, f"c{c}", there) for there in theirs)

    def losses(self, key: Key, c: int) -> Iterator[Move]:
        cells: tuple[Kept, ...] = key[CELLS]
        kept, (whose, past) = cells[c - 1], key[BEHIND]
        if "keeps" in self.on and not whose and kept != self.fresh(c):
            yield f"keep cell {c}", put(key, {BEHIND: (c, kept)}), ()
        past = past if whose == c else self.fresh(c)
        if past._replace(base=0) == kept._replace(base=0):
            return
        again = key[REVIVED][c - 1] or kept.st != "open" or kept.num != past.num
        for b, used in enumerate(key[USED]):
            if used or b <= key[HOMES][c - 1]:
                continue
            after = {
                CELLS: changed(cells, c, past._replace(base=b * self.c["Step"])),
                HOMES: changed(key[HOMES], c, b),
                USED: changed(key[USED], b + 1, True),
                LOSSES: key[LOSSES] + 1,
                BEHIND: (0, self.fresh(1)) if whose == c else key[BEHIND],
                REVIVED: changed(key[REVIVED], c, past.st == "open" and again),
            }
            yield f"cell {c} forgets, and enters home {b}", put(key, after), ()


def put(key: Key, values: dict[int, Any]) -> Key:
    """The same state with some variables changed."""
    return tuple(values.get(place, value) for place, value in enumerate(key))
