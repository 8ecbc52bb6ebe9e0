"""docs/guides/operating.md says what is: every kind of event, and settings with their defaults."""

import re
from dataclasses import fields
from pathlib import Path

from dhsched.dispatch.telemetry.events import KINDS
from dhsched.ownership.limits import Limits
from dhsched.settings import DispatchSettings
from dhsched.worker.settings import WorkerSettings

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "operating.md").read_text()
DEFAULTS = {each.name: each.default for kind in (WorkerSettings, DispatchSettings, Limits) for each in fields(kind)}


def test_the_page_lists_every_kind_of_event() -> None:
    section = PAGE.split("## Events")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == KINDS


def test_every_event_that_the_page_speaks_of_exists() -> None:
    failures = PAGE.split("## Failures")[1].split("\n## ")[0]
    named = set(re.findall(r"`((?:worker|live|brake|new|crash|poison)_[a-z_]+)`", failures))
    settings = set(DEFAULTS)
    assert named - settings <= set(KINDS)


def test_defaults_are_those_of_the_code() -> None:
    page = PAGE.split("## Measured")[0] + PAGE.split("## Settings")[1]
    said = re.findall(r"`(\w+)` \(([\d.,]+)\)", page) + re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|", page, re.MULTILINE)
    assert len(said) > 30
    for name, value in said:
        assert float(value.replace(",", "")) == DEFAULTS[name], name
