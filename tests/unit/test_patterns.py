"""Texts with a pattern: the pattern holds for all of a text. `$` alone lets a newline pass behind it."""

import re
from typing import Any

import msgspec
import pytest

from dhsched.client.models.input import PushText
from dhsched.client.models.keys import CreateKey
from dhsched.errors import BadValue
from dhsched.types import Id, WorkerId
from tests.harness.tree import PACKAGE


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Id, "abc", "abc\n"),
        (WorkerId, "gpu-1#7", "gpu-1#7\n"),
        (PushText, {"request_id": "r-1"}, {"request_id": "r-1\n"}),
        (CreateKey, {"role": "app", "note": "mine"}, {"role": "app", "note": "mine\n"}),
        (CreateKey, {"role": "app", "names": "gpu-*"}, {"role": "app", "names": "gpu-*\n"}),
    ],
)
def test_a_newline_behind_a_text_is_refused(kind: Any, good: object, bad: object) -> None:
    msgspec.convert(good, kind)
    with pytest.raises((msgspec.ValidationError, BadValue)):
        msgspec.convert(bad, kind)


def test_every_pattern_is_a_whole_one() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}: {found}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for found in re.findall(r"Meta\(\s*pattern=.*", path.read_text())
        if path.name != "types.py"
    ]
    assert wrong == [], "use types.whole"
