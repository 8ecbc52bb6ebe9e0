"""What verbs print where a deployment has several cells, and that one cell looks as it always did."""

from __future__ import annotations

from typing import Any

import pytest

from dhsched.cli import remote
from dhsched.cli.doctor import CHECKS
from dhsched.cli.remote import all_pages, with_cell
from dhsched.cli.summary import cell_row


def cell(name: str, trouble: str = "") -> dict[str, Any]:
    figures = {"workers": 2, "lives": 30, "free": 10, "capacity": 40, "home": "h"}
    return {"name": name, "ready": not trouble, "trouble": trouble, **figures}


def test_a_table_has_a_column_for_the_cell_only_where_a_row_has_one() -> None:
    assert with_cell(("live_id", "state"), [{"live_id": "a"}, {"live_id": "b"}]) == ("live_id", "state")
    assert with_cell(("live_id",), [{"live_id": "a", "cell": "c1"}]) == ("live_id", "cell")
    assert with_cell(("live_id",), []) == ("live_id",)


def test_a_cell_that_is_away_has_no_figures_in_the_summary() -> None:
    assert cell_row(cell("c1")) == ["c1", "2", "30", "10", "40", "yes"]
    assert cell_row(cell("c2", "its store cannot be reached")) == ["c2", *"----", "its store cannot be reached"]


def test_doctor_warns_of_each_cell_that_is_away_and_says_nothing_of_a_single_one() -> None:
    found = [*CHECKS["cells"]({"cells": [cell("c1"), cell("c2", "its store cannot be reached")]})]
    assert [(each.check, each.state) for each in found] == [("cell c1", "ok"), ("cell c2", "warning")]
    assert "30 lives" in found[0].found and "cannot be reached" in found[1].found and found[1].remedy
    assert [*CHECKS["cells"]({"cells": [cell("main", "its store cannot be reached")]})] == []


def test_a_list_names_the_cells_that_could_not_be_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[dict[str, Any]] = [
        {"lives": [{"live_id": "a"}], "next": "a", "cells_left_out": ["c2"]},
        {"lives": [{"live_id": "b"}], "next": None, "cells_left_out": ["c2", "c3"]},
    ]

    class Server:
        def __init__(self, url: str) -> None: ...

        def call(self, method: str, path: str, *, query: dict[str, Any]) -> dict[str, Any]:
            return pages.pop(0)

    monkeypatch.setattr(remote, "Server", Server)
    assert [row["live_id"] for row in all_pages("http://x", "lives", "lives", {}, 10)] == ["a", "b"]
    printed = capsys.readouterr()
    assert printed.out == "" and "without cell c2, c3" in printed.err
