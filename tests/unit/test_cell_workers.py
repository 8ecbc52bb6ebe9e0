"""Where a Worker registers among several cells, and what it takes from there."""

from __future__ import annotations

import pytest

from dhsched.cells import workers
from dhsched.cells.workers import Registration, Slots
from dhsched.client.models.summary import CellOut
from dhsched.errors import BadId, BadValue
from dhsched.links.messages import Register
from dhsched.worker import dispatch_link
from dhsched.worker.dispatch_link import Boot


def test_a_worker_comes_back_to_its_cell_unless_told_otherwise() -> None:
    slots = {"A": Slots(1, 10), "B": Slots(7, 10), "C": Slots(7, 10)}
    last = Registration("B", "w#5")
    assert workers.choose_cell(last, slots) == "B"
    assert workers.choose_cell(last, slots, named="C") == "C"
    assert workers.choose_cell(None, slots) == "A", "the least is left there"
    assert workers.choose_cell(Registration("closed", "w#5"), slots) == "A"


def test_workers_of_an_idle_fleet_go_where_the_pool_has_the_fewest_slots() -> None:
    slots = {"A": Slots(0, 0), "B": Slots(0, 0), "C": Slots(0, 0)}
    for n in range(9):
        cell = workers.choose_cell(None, slots, name=f"w{n}")
        slots[cell] = Slots(slots[cell].free + 10, slots[cell].capacity + 10)
    assert {each.capacity for each in slots.values()} == {30}


def test_workers_that_start_together_spread_over_cells_with_nothing() -> None:
    nothing = {"A": Slots(0, 0), "B": Slots(0, 0)}
    chosen = [workers.choose_cell(None, nothing, name=f"w{n}") for n in range(100)]
    assert 30 < chosen.count("A") < 70


def test_a_registration_is_read_back_as_it_was_written() -> None:
    for each in (Registration("b", "w#5"), Registration("", "w#5")):
        assert workers.read_registration(str(each)) == each
    for text in ("", "b/", "/w#5", "b/c/w#5", "w"):
        with pytest.raises(BadId):
            workers.read_registration(text)


def test_a_boot_replaces_the_one_before_only_in_the_same_cell() -> None:
    """w#5 of another cell may be another machine's."""
    assert workers.replaced(Registration("A", "w#5"), "A") == "w#5"
    assert workers.replaced(Registration("A", "w#5"), "B") == ""
    assert workers.replaced(None, "A") == ""


def test_a_worker_registers_only_while_it_runs_nothing_and_takes_only_its_own_tables() -> None:
    assert workers.may_register(0) and not workers.may_register(1)
    assert workers.is_own(Registration("A", "w#5"), Registration("A", "w#5"))
    assert not workers.is_own(Registration("B", "w#5"), Registration("A", "w#5"))
    assert not workers.is_own(None, Registration("A", "w#5"))


# -- one boot chooses


def boot_of(last: Registration | None = None, cell: str = "") -> Boot:
    return Boot(Register("w", "boot", "gpu", 4, "", ""), last=last, wanted_cell=cell)


def cells(**free: int) -> list[CellOut]:
    """Cells by name with so many of 10 slots free; one with less than none cannot be reached."""
    return [CellOut(name, n >= 0, "" if n >= 0 else "away", free=max(n, 0), capacity=10) for name, n in free.items()]


def test_a_boot_registers_where_least_is_free_of_what_can_be_reached() -> None:
    for found, wanted in ((cells(a=5, b=2, c=-1), "b"), (cells(a=0, b=2), "a"), (cells(a=-1, b=10), "b")):
        boot = boot_of()
        boot.choose(found)
        assert boot.cell == wanted and boot.register.replaces == ""


def test_a_boot_comes_back_to_the_cell_of_the_one_before_and_replaces_it() -> None:
    boot = boot_of(Registration("a", "w#3"))
    boot.choose(cells(a=9, b=0))
    assert (boot.cell, boot.register.replaces) == ("a", "w#3")
    named = boot_of(Registration("a", "w#3"), cell="b")
    named.choose(cells(a=0, b=9))
    assert (named.cell, named.register.replaces) == ("b", "")


def test_a_boot_waits_for_its_last_cell_before_it_chooses_another(monkeypatch: pytest.MonkeyPatch) -> None:
    boot = boot_of(Registration("a", "w#3"))
    with pytest.raises(BadValue, match="cell a, where this machine was, is not ready"):
        boot.choose(cells(a=-1, b=0))
    assert boot.cell is None
    boot.choose(cells(a=9, b=0))
    assert [boot.cell, boot.register.replaces] == ["a", "w#3"], "the cell came back"
    moved = boot_of(Registration("a", "w#3"))
    monkeypatch.setattr(dispatch_link, "LAST_CELL_S", 0.0)
    moved.choose(cells(a=-1, b=0))
    assert (moved.cell, moved.register.replaces) == ("b", ""), "w#3 of b is another one"
    retired = boot_of(Registration("c", "w#3"))
    retired.choose(cells(a=9, b=0))
    assert retired.cell == "b", "nobody waits for a cell that is none of the deployment's"


def test_a_boot_of_a_deployment_of_one_cell_names_none() -> None:
    for found in ([], cells(main=3)):
        boot = boot_of(Registration("", "w#3"))
        boot.choose(found)
        assert (boot.cell, boot.register.replaces) == ("", "w#3")


def test_a_boot_that_finds_no_cell_says_so_and_chooses_later() -> None:
    boot = boot_of()
    with pytest.raises(BadValue, match="no cell of the deployment is ready"):
        boot.choose(cells(a=-1, b=-1))
    with pytest.raises(BadValue, match="cell x does not exist; there are a, b"):
        boot_of(cell="x").choose(cells(a=1, b=1))
    assert boot.cell is None
    boot.choose(cells(a=1, b=-1))
    assert boot.cell == "a"
