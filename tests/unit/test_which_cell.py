"""The cell and the store of a verb that uses the store directly."""

from __future__ import annotations

import pytest

from dhsched.cli.which_cell import one_cell, written_cell
from dhsched.errors import BadSetting

STORE = "redis://shared:6379"


def test_with_one_cell_it_is_the_one_that_was_named_or_main(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DHSCHED_CELLS", raising=False)
    for choose in (written_cell, one_cell):
        assert choose(STORE, None) == (STORE, "main")
        assert choose(STORE, "other") == (STORE, "other")


def test_keys_are_written_in_the_first_of_several_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DHSCHED_CELLS", "c1=redis://one:6379 c2")
    assert written_cell(STORE, None) == ("redis://one:6379", "c1")
    assert written_cell(STORE, "c2") == (STORE, "c2")


def test_what_is_done_to_one_cell_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DHSCHED_CELLS", "c1=redis://one:6379 c2")
    with pytest.raises(BadSetting, match=r"the cells c1, c2 .* name it with --cell"):
        one_cell(STORE, None)
    assert one_cell(STORE, "c1") == ("redis://one:6379", "c1")
