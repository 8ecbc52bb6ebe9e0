"""What the hostile side of a storm sends, and that its judge sees what it is there to see."""

from __future__ import annotations

from typing import get_args

import pytest

from dhsched.links import messages
from tests.chaos.hostile_links import WORKER_MESSAGES, worker_rows
from tests.chaos.hostile_values import SINGLE, Coverage, Known, Row, fields_of, rows_of, wrong


def test_every_message_of_a_worker_and_every_field_has_a_row() -> None:
    """The rows are those of the product's definitions: a field that is added is a row that is added."""
    sent = {*get_args(messages.FromWorker), *get_args(messages.PullSays)}
    assert {*WORKER_MESSAGES.values()} == sent
    fields = {(kind, field) for kind in sent for field in kind.__struct_fields__}
    rows = {(WORKER_MESSAGES[row.message], row.field) for row in worker_rows()}
    assert fields == {row for row in rows if row[1] != "-"}
    assert {kind for kind in sent if not kind.__struct_fields__} == {kind for kind, field in rows if field == "-"}


def test_a_field_that_is_added_is_a_row_that_is_added() -> None:
    class Longer(messages.Report, tag="report"):
        added: messages.Number = 0

    assert {*rows_of("report", Longer)} - {*rows_of("report", messages.Report)} == {Row("report", "added")}


@pytest.mark.parametrize("kind", SINGLE)
def test_every_kind_of_wrong_value_fits_every_field(kind: str) -> None:
    """A value of each kind is there for each field, and is not the field's own."""
    for message in WORKER_MESSAGES.values():
        for type_ in fields_of(message).values():
            own = {"IntType": 5, "FloatType": 5.0, "BytesType": b"own", "ListType": ["own"]}.get(type(type_).__name__)
            made = wrong(kind, type_, Known(own or "own"))
            assert made is not None and made != (own or "own")


def test_an_empty_cell_is_found() -> None:
    coverage = Coverage([Row("a", "x"), Row("a", "y")])
    for kind in SINGLE:
        coverage.count(Row("a", "x"), kind, "refused")
    coverage.count(Row("a", "y"), "old", "ignored")
    coverage.repeated("a", "answered", 10)
    assert coverage.lacking(10) == [f"a.y: {kind} was sent 0 times, not 1" for kind in SINGLE if kind != "old"]
    assert len(coverage.lacking(11)) == 2 + 6
    assert next(coverage.lines()).split()[0] == "message.field"
