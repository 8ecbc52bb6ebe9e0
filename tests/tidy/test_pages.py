"""The pages of docs/: each can be found, and each that is named is there. These tests read files and run nothing."""

from __future__ import annotations

import re
from typing import get_args

from dhsched.client.models.input import Answer, Push
from dhsched.links import messages
from tests.harness.tree import ROOT, document, texts

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#\s]+)")
PATH = re.compile(r"(?<![\w/])docs/[\w/-]+\.md")
"""Docstrings, comments, messages and headers name a page by its path from the root."""
EXPLAINED = re.compile(r"\bsessions?\b[^.]{0,4}\b(?:is )?called (?:a )?\W?lives?\W? here")
GENERATED = "configuration.md"


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


def test_every_page_says_what_a_live_is() -> None:
    """A reader may come to any page first. Records of decisions are for readers of the protocol."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *DOCS.rglob("*.md")]
    without = [
        str(page.relative_to(ROOT))
        for page in pages
        if page.parent.name != "decisions"
        and page.name != GENERATED
        and not EXPLAINED.search(re.sub(r"\s+", " ", page.read_text()))
    ]
    assert without == [], "say `session (called a live here)` the first time"


def test_the_glossary_gives_each_word_one_meaning() -> None:
    words = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", document("docs/reference/glossary.md"), re.MULTILINE)[2:]
    assert len(words) > 40
    assert [word for word, _ in words] == sorted({word for word, _ in words}, key=str.lower)
    assert [word for word, meaning in words if "also:" in meaning or "," in word] == []


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = {*re.findall(r"`(test_\w+)`", document("docs/internals/threats.md"))}
    there = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) > 25 and named - there == set()


def test_the_page_of_messages_has_every_message_with_its_fields() -> None:
    page = document("docs/reference/messages.md")

    def section(title: str) -> str:
        return page.split(f"### {title}\n")[1].split("\n#")[0]

    links = {
        "Worker to Dispatch": messages.FromWorker,
        "Dispatch to Worker": messages.FromDispatch,
        "Worker to controller": messages.PullSays,
        "Controller to Worker": messages.InferSays,
    }
    for title, union in links.items():
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \| .+ \|$", section(title), re.MULTILINE)
        listed = {name: tuple(re.findall(r"`(\w+)`", fields)) for name, fields in rows}
        kinds = get_args(union)
        assert listed == {kind.__struct_config__.tag: kind.__struct_fields__ for kind in kinds}, title
    limits = f"{messages.FRAME_BYTES_MAX // 2**20} MiB and {messages.MESSAGES_MAX} messages"
    assert limits in re.sub(r"\s+", " ", page), "the limits of a frame"
    for title, kind in (("Application to controller", Push), ("Controller to application", Answer)):
        assert re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE) == [*kind.__struct_fields__], title
