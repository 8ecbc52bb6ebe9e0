"""The public names are those of docs/reference/stability.md: one that comes or goes is a change that must be meant."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType

import pytest

from dhsched import errors
from dhsched.client import Client, Stream
from dhsched.testing import ScriptedLive
from dhsched.worker import Item, Publish, Session, Worker
from tests.harness.tree import document

NOT_FOR_AUTHORS: dict[type, set[str]] = {Item: {"raw_config", "mark"}}
"""Fields that are there because a Struct has no private ones."""


def listed(first: str) -> list[str]:
    [names] = re.findall(rf"^\| `{re.escape(first)}`[^|]*\| (.+) \|$", document("docs/reference/stability.md"), re.M)
    return re.findall(r"`(\w+)`", names)


def public(kind: type) -> set[str]:
    """Names of a class without an underscore: its methods and properties, its fields, what it sets on itself."""
    set_by_init = set(re.findall(r"self\.([a-z]\w*)(?:: .+)? =", inspect.getsource(kind)))
    names = {*dir(kind), *set_by_init} - NOT_FOR_AUTHORS.get(kind, set())
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("module", ["dhsched.worker", "dhsched.testing", "dhsched.client"])
def test_a_module_exports_what_is_listed(module: str) -> None:
    made = importlib.import_module(module)
    assert made.__all__ == listed(module) == sorted(made.__all__)
    assert all(hasattr(made, name) for name in made.__all__)
    if hasattr(made, "HOMES"):
        # Its names are loaded when they are used.
        loaded = {name for names in made.HOMES.values() for name in names}
        assert (loaded | {"Refused", "Unreachable", "Worker"}) - {"WorkerSummary"} == {*made.__all__}
        return
    # Its own submodules and what it imports from elsewhere are not meant.
    seen = {name for name, value in vars(made).items() if not isinstance(value, ModuleType) and name[0] != "_"}
    assert seen == {*made.__all__}


@pytest.mark.parametrize("kind", [Session, Item, Publish, Worker, ScriptedLive, Client, Stream])
def test_a_class_shows_what_is_listed(kind: type) -> None:
    assert sorted(public(kind)) == [name for name in listed(kind.__name__) if name not in ("async", "dhsched")]


def test_every_error_has_one_base() -> None:
    kinds = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, Exception)]
    assert all(issubclass(each, errors.DhschedError) for each in kinds)
