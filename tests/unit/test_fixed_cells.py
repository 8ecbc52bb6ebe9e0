"""The cells of a deployment, fixed at its birth: how a setting names them, which one a live is in, who may use them."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhsched.cells.buckets import bucket_of
from dhsched.cells.fixed import CELLS_MAX, DRAWS_MAX, NamedCell, cell_of, draw_id, read_cells, refusal_of
from dhsched.errors import BadId, BadSetting

NAMES = st.lists(st.from_regex(r"\A[a-z0-9]{1,8}\Z"), min_size=2, max_size=CELLS_MAX, unique=True)
LIVE = st.from_regex(r"\A[A-Za-z0-9._~-]{1,20}/[A-Za-z0-9._~-]{1,20}\Z")


def test_a_setting_names_cells_in_their_order_with_or_without_a_store() -> None:
    assert read_cells("") == () == read_cells("  ")
    assert read_cells("b a") == (NamedCell("b"), NamedCell("a"))
    given = " east=redis://:secret@east:6379/2?replicas=1   west "
    assert read_cells(given) == (NamedCell("east", "redis://:secret@east:6379/2?replicas=1"), NamedCell("west"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a b a", "names a twice"),
        ("a", "one cell, a; for one cell set cell"),
        ("a b=", "no URL after b="),
        (" ".join(f"c{n}" for n in range(CELLS_MAX + 1)), f"names {CELLS_MAX + 1} cells; {CELLS_MAX} are the most"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadSetting, match=told):
        read_cells(text)


def test_a_cell_has_a_name_that_is_an_id() -> None:
    for text in ("a {b}", "a b:c", "a =redis://host"):
        with pytest.raises(BadId, match="name of a cell"):
            read_cells(text)


def test_the_cell_of_a_live_never_changes() -> None:
    """These are written down in stores: with other answers, lives would be looked for elsewhere."""
    assert [cell_of(("x", "y", "z"), live) for live in ("t/L1", "t/L2", "anna/greeting")] == ["y", "z", "y"]
    assert [cell_of("abcd", live) for live in ("t/L1", "t/L2", "anna/greeting")] == ["b", "d", "d"]


@given(names=NAMES, live=LIVE)
def test_every_live_is_in_one_of_the_cells_by_its_bucket_alone(names: list[str], live: str) -> None:
    assert cell_of(names, live) == names[bucket_of(live) % len(names)]


@pytest.mark.parametrize("cells", [2, 3, 5, CELLS_MAX])
def test_lives_are_spread_evenly(cells: int) -> None:
    names = [f"c{n}" for n in range(cells)]
    counted = Counter(cell_of(names, f"default/L{n}") for n in range(200 * cells))
    assert len(counted) == cells and 100 < min(counted.values()) <= max(counted.values()) < 320


def test_a_service_is_refused_unless_its_list_is_that_of_the_cell() -> None:
    assert refusal_of(["a", "b"], ("a", "b"), "a") == ""
    told = refusal_of(["b", "a"], ["a", "b"], "a")
    assert "cell a belongs to a deployment of the cells a, b, in this order" in told and "was given b, a" in told
    assert refusal_of(["a", "b", "c"], ["a", "b"], "b") and refusal_of(["a"], ["a", "b"], "a")


@given(names=NAMES, at=st.integers(0, CELLS_MAX - 1), tenant=st.sampled_from(["default", "acme", "a.b-c"]))
def test_an_id_is_drawn_for_the_wanted_cell(names: list[str], at: int, tenant: str) -> None:
    wanted, drawn = names[at % len(names)], count()
    live_id = draw_id(names, tenant, wanted, lambda: f"lv-{next(drawn)}")
    assert cell_of(names, f"{tenant}/{live_id}") == wanted
    assert live_id == f"lv-{next(drawn) - 1}", "the first one that fits"


def test_draws_end_even_if_none_fits() -> None:
    drawn = count()

    def always_the_same() -> str:
        next(drawn)
        return "lv-0"

    other = "b" if cell_of("ab", "t/lv-0") == "a" else "a"
    assert draw_id("ab", "t", other, always_the_same) == "lv-0"
    assert next(drawn) == DRAWS_MAX + 1
