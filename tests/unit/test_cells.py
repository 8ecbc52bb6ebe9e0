"""The rules of many cells: what a cell answers, where a create goes, how a bucket moves, whatever is forgotten.

First what is decided, compared as values. Then whole moves as schedules that can be read. Then Hypothesis: any order of
creates, steps of movers, ends and losses on a few cells. spec/Cells.tla has all orders at small sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhsched.cells import buckets, creates, maps, moves
from dhsched.cells.buckets import (
    BUCKETS,
    Absent,
    Ask,
    Away,
    Bucket,
    Elsewhere,
    Has,
    NotClosed,
    NotYet,
    Older,
    Refused,
    Take,
    answer_create,
    answer_question,
    bucket_of,
    is_stray,
)
from dhsched.cells.creates import Again, Answered, Call, Question
from dhsched.cells.maps import ANNOUNCE_WAIT_S, MAP_AGE_MAX_S, CellMap, Row, Version
from dhsched.cells.moves import Announce, Close, CopyMap, Open, Publish, Reading, Settle, Wait

ONE = 17  # The bucket of these tests.
MINE, CLOSED, OPENED = Bucket("mine", 1), Bucket("away", 2, "B"), Bucket("mine", 2, "A")
AT_A, TO_B = CellMap(Version(0, 1), {ONE: Row("A")}), CellMap(Version(0, 2), {ONE: Row("A", next="B")})
AT_B = CellMap(Version(0, 3), {ONE: Row("B", 2, was="A")})


def test_the_bucket_of_an_id_never_changes() -> None:
    assert [bucket_of(live) for live in ("t/L1", "t/L2", "anna/greeting")] == [313, 131, 655]
    assert {bucket_of(f"t/L{n}") for n in range(20_000)} == {*range(BUCKETS)}


def test_a_cell_takes_a_create_by_its_own_move_only() -> None:
    assert answer_create(MINE, by=1, has=False) == Take()
    assert answer_create(MINE, by=2, has=True) == NotYet(1)
    assert answer_create(Bucket(), by=2, has=False) == NotYet(0)
    assert answer_create(CLOSED, by=1, has=True) == Away("B", 2)
    assert answer_create(CLOSED, by=3, has=False) == NotYet(2)
    assert answer_create(Bucket("mine", 3, "B"), by=1, has=False) == Older(3)


def test_a_cell_that_has_just_got_the_bucket_asks_the_one_before() -> None:
    assert answer_create(OPENED, by=2, has=False) == Ask("A")
    assert answer_create(OPENED, by=2, has=True) == Take()
    assert answer_create(OPENED, by=2, has=False, vouched=True) == Take()
    assert answer_create(Bucket("mine", 2), by=2, has=False) == Take()


def test_only_a_closed_cell_says_that_it_does_not_have_the_live() -> None:
    assert answer_question(CLOSED, by=2, has=False) == Absent()
    assert answer_question(CLOSED, by=2, has=True) == Has()
    assert answer_question(MINE, by=2, has=False) == NotClosed(1)
    assert answer_question(Bucket(), by=2, has=False) == NotClosed(0)


def test_a_create_asks_the_announced_cell_first() -> None:
    row = TO_B.rows[ONE]
    first = creates.first_call(row)
    assert first == Call("B", 2)
    assert creates.after_call(row, first, NotYet(0)) == Call("A", 1)
    assert creates.after_call(row, Call("A", 1), Take()) == Answered("A")
    assert creates.after_call(row, Call("A", 1), Away("B", 2)) == Again()


def test_a_create_in_the_next_cell_vouches_for_the_one_before() -> None:
    row, first = AT_B.rows[ONE], Call("B", 2)
    assert creates.first_call(row) == first
    question = creates.after_call(row, first, Ask("A"))
    assert question == Question("A", 2)
    assert creates.after_question(first, question, Absent()) == Call("B", 2, vouched=True)
    assert creates.after_question(first, question, Has()) == Answered("A")
    assert creates.after_question(first, question, NotClosed(1)) == Again()
    assert creates.after_call(row, first, NotYet(0)) == Again()


def test_what_a_move_writes_is_compared_with_what_is_there() -> None:
    assert buckets.close(MINE, by=2, to="B") == CLOSED == buckets.close(CLOSED, by=2, to="B")
    assert buckets.close(Bucket(), by=3, to="A") == Bucket("away", 3, "A")
    assert buckets.close(Bucket("mine", 3, "B"), by=2, to="B") == Refused(Bucket("mine", 3, "B"))
    assert buckets.open_bucket(Bucket(), by=2, source="A") == OPENED
    assert buckets.open_bucket(Bucket("mine", 2), by=2, source="A") == Bucket("mine", 2)
    assert buckets.open_bucket(Bucket("away", 3, "A"), by=2, source="A") == Refused(Bucket("away", 3, "A"))
    assert buckets.settle(OPENED, by=2) == Bucket("mine", 2)
    assert buckets.settle(CLOSED, by=1) == Refused(CLOSED)


def test_a_bucket_that_still_asks_moves_on_only_straight_back() -> None:
    assert buckets.close(OPENED, by=3, to="C") == Refused(OPENED)
    assert buckets.close(OPENED, by=3, to="A") == Bucket("away", 3, "A")


def test_the_newer_map_wins_and_the_draw_decides_between_equals() -> None:
    other = replace(TO_B, version=Version(0, 2, draw=9))
    assert maps.highest([TO_B, AT_A, other]) is other
    assert maps.install(TO_B, AT_A) is TO_B
    assert maps.install(TO_B, other) is other
    assert maps.highest([replace(AT_A, version=Version(config=1)), AT_B]).version == Version(config=1)
    assert maps.announced(AT_A, ONE, to="B", draw=0) == TO_B
    assert maps.published(TO_B, ONE, draw=0) == AT_B
    assert maps.published(AT_B, ONE, draw=0) == AT_B
    assert maps.may_create(MAP_AGE_MAX_S) and not maps.may_create(MAP_AGE_MAX_S + 0.1)
    assert MAP_AGE_MAX_S < ANNOUNCE_WAIT_S


def plan_of(a: Reading, b: Reading, *, seen_s: float = ANNOUNCE_WAIT_S, want: str = "") -> list[moves.Action]:
    return moves.plan({"A": a, "B": b}, ONE, announced_s=seen_s, want=want)


def test_each_step_of_a_move_follows_from_what_the_cells_say() -> None:
    nothing = Reading(Bucket(), AT_A)
    assert plan_of(Reading(MINE, AT_A), nothing) == []
    assert plan_of(Reading(MINE, AT_A), nothing, want="B") == [Announce("B", 2)]
    assert plan_of(Reading(MINE, TO_B), nothing) == [CopyMap("B", Version(0, 2))]
    announced = Reading(Bucket(), TO_B)
    assert plan_of(Reading(MINE, TO_B), announced, seen_s=12.0) == [Wait(ANNOUNCE_WAIT_S - 12.0)]
    assert plan_of(Reading(MINE, TO_B), announced) == [Close("A", "B", 2)]
    assert plan_of(Reading(CLOSED, TO_B), announced, seen_s=0.0) == [Open("B", "A", 2)]
    assert plan_of(Reading(CLOSED, TO_B), Reading(OPENED, TO_B)) == [Publish("B", 2)]
    assert plan_of(Reading(CLOSED, AT_B), Reading(OPENED, TO_B)) == []
    assert plan_of(Reading(CLOSED, AT_B, empty=True), Reading(OPENED, TO_B, home="h5")) == [Settle("B", 2, "h5")]
    assert plan_of(Reading(CLOSED, AT_B, empty=True), Reading(Bucket("mine", 2), AT_B)) == []


def test_what_a_cell_has_forgotten_is_done_again() -> None:
    assert plan_of(Reading(MINE, AT_A), Reading(OPENED, AT_B), seen_s=0.0) == [Close("A", "B", 2)]
    assert plan_of(Reading(MINE, AT_A, empty=True), Reading(Bucket("mine", 2), AT_B)) == [Close("A", "B", 2)]
    assert plan_of(Reading(CLOSED, AT_B), Reading(Bucket(), AT_A)) == [Open("B", "A", 2)]
    assert plan_of(Reading(MINE, AT_B), Reading(Bucket(), AT_B)) == [Close("A", "B", 2)]


def test_a_move_to_a_third_cell_waits_for_the_last_live_in_the_first() -> None:
    to_c = CellMap(Version(0, 4), {ONE: Row("B", 2, was="A", next="C")})
    third = Reading(Bucket(), to_c)
    for empty, wanted in ((False, []), (True, [Settle("B", 2, "")])):
        cells = {"A": Reading(CLOSED, to_c, empty=empty), "B": Reading(OPENED, to_c), "C": third}
        assert moves.plan(cells, ONE, announced_s=ANNOUNCE_WAIT_S) == wanted
    settled = {"A": Reading(CLOSED, to_c), "B": Reading(Bucket("mine", 2), to_c), "C": third}
    assert moves.plan(settled, ONE, announced_s=ANNOUNCE_WAIT_S) == [Close("B", "C", 3)]


def test_a_cell_gets_the_bucket_back_before_it_moves_on() -> None:
    """B had the bucket and asked A; it has forgotten both. C would ask B alone, and A may have lives."""
    to_c = CellMap(Version(0, 4), {ONE: Row("B", 2, was="A", next="C")})
    cells = {"A": Reading(CLOSED, to_c), "B": Reading(Bucket(), to_c), "C": Reading(Bucket(), to_c)}
    assert moves.plan(cells, ONE, announced_s=ANNOUNCE_WAIT_S) == [Open("B", "A", 2)]
    cells["A"] = Reading(MINE, to_c)
    assert moves.plan(cells, ONE, announced_s=ANNOUNCE_WAIT_S) == [Close("A", "B", 2)]


def test_a_cell_that_forgets_while_the_next_move_is_announced_is_closed_first() -> None:
    """B cannot be closed before A is empty, and A is not empty before it is closed (found by LiveCellsThree)."""
    to_c = CellMap(Version(0, 4), {ONE: Row("B", 2, was="A", next="C")})
    cells = {"A": Reading(MINE, to_c), "B": Reading(OPENED, to_c), "C": Reading(Bucket(), to_c)}
    assert moves.plan(cells, ONE, announced_s=ANNOUNCE_WAIT_S) == [Close("A", "B", 2)]


def test_a_live_that_nobody_would_find_is_a_stray() -> None:
    assert is_stray(MINE, "A", Elsewhere(OPENED, has=True))
    assert is_stray(CLOSED, "A", Elsewhere(Bucket("mine", 2), has=False))
    assert not is_stray(CLOSED, "A", Elsewhere(OPENED, has=False))
    assert not is_stray(OPENED, "B", Elsewhere(MINE, has=True))
    assert not is_stray(OPENED, "B", Elsewhere(CLOSED, has=True))


# -- whole moves


@dataclass
class Kept:
    """What one cell keeps, in memory. `home` changes where the cell forgets."""

    bucket: Bucket
    map: CellMap
    lives: dict[str, str] = field(default_factory=dict)
    home: int = 0


class Deployment:
    """Some cells, and a Dispatch that reads every map before a create. Only what is forgotten is not the product's."""

    def __init__(self, names: str = "AB") -> None:
        self.cells = {name: Kept(MINE if name == "A" else Bucket(), AT_A) for name in names}

    def map(self) -> CellMap:
        return maps.highest(cell.map for cell in self.cells.values())

    def create(self, live: str) -> creates.Next:
        """One pass, from its first call to its end."""
        row = self.map().rows[ONE]
        call: creates.Next = creates.first_call(row)
        while isinstance(call, Call):
            cell = self.cells[call.cell]
            answer = answer_create(cell.bucket, by=call.by, has=live in cell.lives, vouched=call.vouched)
            then = creates.after_call(row, call, answer)
            if then == Answered(call.cell):
                cell.lives.setdefault(live, "open")
            elif isinstance(then, Question):
                old = self.cells[then.cell]
                asked = answer_question(old.bucket, by=then.by, has=live in old.lives)
                then = creates.after_question(call, then, asked)
            call = then
        return call

    def plan(self, want: str = "") -> list[moves.Action]:
        readings = {
            name: Reading(cell.bucket, cell.map, empty=not cell.lives, home=str(cell.home))
            for name, cell in self.cells.items()
        }
        return moves.plan(readings, ONE, announced_s=ANNOUNCE_WAIT_S, want=want)

    def act(self, action: moves.Action) -> None:
        match action:
            case Announce(to, _):
                self.install("A", maps.announced(self.map(), ONE, to=to, draw=0))
            case Publish(_, by):
                if self.map().rows[ONE].moving == by:
                    self.install("A", maps.published(self.map(), ONE, draw=0))
            case CopyMap(name, _):
                self.install(name, self.map())
            case Close(name, to, by):
                self.write(name, buckets.close(self.cells[name].bucket, by=by, to=to))
            case Open(name, source, by):
                self.write(name, buckets.open_bucket(self.cells[name].bucket, by=by, source=source))
                self.install(name, self.map())
            case Settle(name, by, home):
                if home == str(self.cells[name].home):
                    self.write(name, buckets.settle(self.cells[name].bucket, by=by))
            case Wait():
                pass

    def install(self, name: str, offered: CellMap) -> None:
        self.cells[name].map = maps.install(self.cells[name].map, offered)

    def write(self, name: str, bucket: Bucket | Refused) -> None:
        if not isinstance(bucket, Refused):
            self.cells[name].bucket = bucket

    def finish(self, want: str = "", steps_max: int = 30) -> list[str]:
        """Carry the move on until nothing is left to do; the names of the steps."""
        done: list[str] = []
        while (actions := self.plan(want)) and len(done) < steps_max:
            for action in actions:
                self.act(action)
                done.append(type(action).__name__)
        assert len(done) < steps_max, done
        return done

    def end_strays(self) -> None:
        for name, cell in self.cells.items():
            for live in [*cell.lives]:
                there = (Elsewhere(x.bucket, live in x.lives) for other, x in self.cells.items() if other != name)
                if any(is_stray(cell.bucket, name, each) for each in there):
                    del cell.lives[live]

    def forget(self, name: str, past: Kept) -> None:
        self.cells[name] = Kept(past.bucket, past.map, {**past.lives}, home=self.cells[name].home + 1)


def test_a_move_from_the_first_step_to_the_last() -> None:
    all_cells = Deployment()
    assert all_cells.create("L1") == Answered("A")
    assert all_cells.finish(want="B") == ["Announce", "CopyMap", "Close", "Open", "Publish"]
    assert all_cells.create("L1") == Answered("A")  # It lives where it was born.
    assert all_cells.create("L2") == Answered("B")
    assert all_cells.finish() == []
    del all_cells.cells["A"].lives["L1"]
    assert all_cells.finish() == ["Settle"]
    assert all_cells.create("L1") == Answered("B")
    assert all_cells.cells["B"].bucket == Bucket("mine", 2)


def test_creates_in_the_middle_of_a_move_are_answered_by_one_cell() -> None:
    all_cells = Deployment()
    answers = [all_cells.create("L1")]
    while actions := all_cells.plan(want="B"):
        all_cells.act(actions[0])
        answers.append(all_cells.create("L1"))
    # Between close and open nobody creates: 503, and the caller tries again.
    assert answers == [Answered("A")] * 3 + [Again(), Answered("A"), Answered("A")]
    assert all_cells.cells["B"].lives == {}


def test_the_old_cell_forgets_that_it_was_closed() -> None:
    all_cells = Deployment()
    all_cells.create("L0")  # As long as it lives, B asks A.
    past = replace(all_cells.cells["A"])
    all_cells.finish(want="B")
    all_cells.create("L1")
    all_cells.forget("A", past)
    assert all_cells.create("L1") == Answered("B")
    assert all_cells.create("L2") == Again()  # A is open, so it cannot say that L2 is not there.
    assert all_cells.finish() == ["Close", "Publish"]
    assert [all_cells.create(live) for live in ("L0", "L2")] == [Answered("A"), Answered("B")]


def test_a_cell_that_the_bucket_left_two_moves_ago_forgets_it() -> None:
    all_cells = Deployment("ABC")
    past = replace(all_cells.cells["A"])
    all_cells.finish(want="B")
    all_cells.finish(want="C")
    all_cells.forget("A", past)
    assert "Close" in all_cells.finish()
    assert [name for name, cell in all_cells.cells.items() if cell.bucket.state == "mine"] == ["C"]


def test_a_live_whose_end_was_forgotten_is_ended_again() -> None:
    all_cells = Deployment()
    all_cells.create("L1")
    past = replace(all_cells.cells["A"], lives={"L1": "open"})
    all_cells.cells["A"].lives.clear()
    all_cells.finish(want="B")
    assert all_cells.create("L1") == Answered("B")
    all_cells.forget("A", past)
    all_cells.end_strays()
    assert (all_cells.cells["A"].lives, all_cells.cells["B"].lives) == ({}, {"L1": "open"})
    assert all_cells.finish() == ["Close", "Publish"]


def test_the_next_cell_forgets_that_it_was_opened() -> None:
    all_cells = Deployment()
    past = replace(all_cells.cells["B"])
    all_cells.finish(want="B")
    all_cells.create("L1")
    all_cells.forget("B", past)
    assert all_cells.create("L1") == Again()
    assert all_cells.finish() == ["Open", "Settle"]
    assert all_cells.create("L1") == Answered("B")


def test_there_and_back_with_lives_in_both() -> None:
    all_cells = Deployment()
    all_cells.create("L1")
    all_cells.finish(want="B")
    all_cells.create("L2")
    all_cells.finish(want="A")
    assert [all_cells.create(live) for live in ("L1", "L2", "L3")] == [Answered("A"), Answered("B"), Answered("A")]
    assert all_cells.map().rows[ONE] == Row("A", 3, was="B")


STEP = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(["L1", "L2", "L3"])),
    st.tuples(st.just("end"), st.sampled_from(["L1", "L2", "L3"])),
    st.tuples(st.just("decide"), st.sampled_from(["", "A", "B", "C"])),
    st.tuples(st.just("act"), st.integers(0, 2)),
    st.tuples(st.just("keep"), st.sampled_from("ABC")),
    st.tuples(st.just("forget"), st.sampled_from("ABC")),
    st.tuples(st.just("repair"), st.none()),
)


@settings(max_examples=300)
@given(steps=st.lists(STEP, max_size=60), losses_max=st.sampled_from([0, 3]))
def test_any_order_ends_with_one_cell_for_the_bucket_and_for_each_live(
    steps: list[tuple[str, object]], losses_max: int
) -> None:
    """Movers act late, and cells go back to what was kept of them: in the end all is in one cell again."""
    world = Deployment("ABC")
    kept = {name: replace(cell) for name, cell in world.cells.items()}
    decided: list[moves.Action] = []
    losses = 0
    for what, argument in steps:
        if what == "create":
            world.create(str(argument))
        elif what == "end":
            for cell in world.cells.values():
                cell.lives.pop(str(argument), None)
        elif what == "decide":
            decided = (decided + world.plan(str(argument))[:1])[-3:]
        elif what == "act" and decided:
            world.act(decided.pop(int(str(argument)) % len(decided)))
        elif what == "keep":
            past = world.cells[str(argument)]
            kept[str(argument)] = replace(past, lives={**past.lives})
        elif what == "forget" and losses < losses_max:
            losses += 1
            world.forget(str(argument), kept[str(argument)])
        elif what == "repair":
            world.end_strays()
        if not losses:
            assert sum(cell.bucket.state == "mine" for cell in world.cells.values()) <= 1
            for live in ("L1", "L2", "L3"):
                assert sum(live in cell.lives for cell in world.cells.values()) <= 1
    for _ in range(4):
        world.finish()
        world.end_strays()
    row = world.map().rows[ONE]
    assert world.cells[row.cell].bucket.by == row.by
    assert [name for name, cell in world.cells.items() if cell.bucket.state == "mine"] == [row.cell]
    for live in ("L1", "L2", "L3"):
        assert sum(live in cell.lives for cell in world.cells.values()) <= 1


@pytest.mark.parametrize("state", ["none", "mine", "away"])
@given(by=st.integers(0, 9), named=st.integers(1, 9), has=st.booleans())
def test_a_create_is_taken_by_exactly_one_move(state: str, by: int, named: int, has: bool) -> None:
    bucket = {"none": Bucket(), "mine": Bucket("mine", by), "away": Bucket("away", by, "B")}[state]
    taken = answer_create(bucket, by=named, has=has) == Take()
    assert taken == (state == "mine" and by == named)
