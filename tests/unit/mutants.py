"""Mutants as text: one piece of text replaced in a module of the product, and unit tests that must notice it.

A mutant that nothing notices shows a rule that no test holds. The tests are run here without pytest, in modules of
their own, against the mutated modules.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest


class Mutant(NamedTuple):
    """`now` instead of `text`, which occurs once in `module`."""

    module: str
    text: str
    now: str


def mutated_tests(
    patch: pytest.MonkeyPatch, modules: Mapping[str, ModuleType], tests: Sequence[str], mutant: Mutant | None
) -> list[ModuleType]:
    """The test modules, on modules of the product of which one is mutated. `modules` are in the order of imports."""
    for name, original in modules.items():
        path = Path(str(original.__file__))
        source = path.read_text()
        if mutant is not None and mutant.module == name:
            assert source.count(mutant.text) == 1, f"{name}.py has {source.count(mutant.text)} times {mutant.text!r}"
            source = source.replace(mutant.text, mutant.now)
        module = load(original.__name__, source, path)
        patch.setitem(sys.modules, module.__name__, module)
        patch.setattr(sys.modules[original.__name__.rpartition(".")[0]], name, module)
    here = Path(__file__).parent
    return [load(f"mutated_{name}", (here / f"{name}.py").read_text(), here / f"{name}.py") for name in tests]


def load(name: str, source: str, path: Path) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def first_failure(tests: list[ModuleType], limit_s: float = 5.0) -> BaseException | None:
    """What the first test fails with that fails; a test takes at most `limit_s`."""
    for module in tests:
        for test, arguments in runs_of(module):
            try:
                with pytest.MonkeyPatch.context() as patch:
                    if "monkeypatch" in inspect.signature(test).parameters:
                        arguments["monkeypatch"] = patch
                    if inspect.iscoroutinefunction(test):
                        asyncio.run(asyncio.wait_for(test(**arguments), limit_s))
                    else:
                        test(**arguments)
            except (Exception, pytest.fail.Exception) as failure:
                return failure
    return None


def runs_of(module: ModuleType) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Every test of a module with its arguments, as its parametrize marks say."""
    for name, test in [*vars(module).items()]:
        if not name.startswith("test_"):
            continue
        given = []
        for mark in getattr(test, "pytestmark", []):
            names, values = mark.args
            one = isinstance(names, str)
            given.append([{names: each} if one else dict(zip(names, each, strict=True)) for each in values])
        for chosen in product(*given):
            yield test, {key: value for each in chosen for key, value in each.items()}
