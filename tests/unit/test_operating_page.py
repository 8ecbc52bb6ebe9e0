"""docs/operating.md says what is: every kind of event, no more."""

import re
from pathlib import Path

from dhsched.dispatch.events import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"


def test_the_page_lists_every_kind_of_event() -> None:
    section = PAGE.read_text().split("## Events")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == KINDS
