"""docs/reference/api.md says what is served: every operation and every problem, no more."""

import re
from pathlib import Path
from typing import Any, cast

from dhsched.dispatch.app import Replica
from dhsched.input_routes import INPUT
from dhsched.web import PROBLEMS, document

DOCS = Path(__file__).parents[2] / "docs" / "reference"
SERVED = [*Replica(cast(Any, None)).endpoints(), *INPUT]


def test_the_page_lists_every_operation() -> None:
    page = (DOCS / "api.md").read_text()
    listed = re.findall(r"^\| (GET|POST|PUT|PATCH|DELETE) \| `(.+?)` \| (.+?) \|$", page, re.MULTILINE)
    assert listed == [(each.method, each.path, each.summary) for each in SERVED]


def test_the_page_lists_every_problem() -> None:
    page = (DOCS / "api.md").read_text()
    listed = re.findall(r"^\| ([A-Z_]+) \| (\d+) \| (yes)? ?\| (.+?) \|$", page, re.MULTILINE)
    problems = [
        (code, str(kind.status), "yes" if kind.retry_after_s is not None else "", kind.title)
        for code, kind in PROBLEMS.items()
    ]
    assert listed == problems


def test_the_document_is_whole() -> None:
    described = document("dispatch", "1", SERVED)
    operations = {each["operationId"] for path in described["paths"].values() for each in path.values()}
    assert operations == {each.name for each in SERVED} and len(operations) == len(SERVED)
    references = set(re.findall(r"#/components/schemas/(\w+)", str(described)))
    assert references <= set(described["components"]["schemas"])
