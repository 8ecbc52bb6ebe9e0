"""The pages of docs/: each can be found, and each that is named is there. These tests read files and run nothing."""

from __future__ import annotations

import re

from tests.tidy.test_tidy import ROOT, document, texts

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#\s]+)")
PATH = re.compile(r"(?<![\w/])docs/[\w/-]+\.md")
"""Docstrings, comments, messages and headers name a page by its path from the root."""


def test_every_page_is_in_the_index() -> None:
    """Records of decisions have an index of their own, which is in this one."""
    linked = {(DOCS / target).resolve() for target in LINK.findall(document("docs/README.md"))}
    pages = {page.resolve() for page in DOCS.rglob("*.md") if not re.match(r"\d", page.name)}
    missing = sorted(str(page.relative_to(ROOT)) for page in pages - linked - {DOCS / "README.md"})
    assert missing == [], "docs/README.md does not link to these"


def test_every_page_that_is_named_is_there() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} names {page}"
        for path in texts()
        for page in sorted({*PATH.findall(path.read_text(errors="replace"))})
        if not (ROOT / page).exists()
    ]
    assert wrong == []
