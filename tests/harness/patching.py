"""Put a function in the place of another one, wherever it was imported; fire timers by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from spec.patching import users_of


def everywhere(patch: pytest.MonkeyPatch, name: str, function: Callable[..., Any]) -> None:
    for module in users_of(name):
        patch.setattr(module, name, function)


def timers_by_hand(patch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """The calls that `call_later` of the running loop is asked for from now on. They wait until the
    test makes them, however long it takes."""
    timers: list[Callable[[], object]] = []

    def note(_seconds: float, call: Callable[..., object], *arguments: Any) -> None:
        timers.append(partial(call, *arguments))

    patch.setattr(asyncio.get_running_loop(), "call_later", note)
    return timers


def fire(timers: list[Callable[[], object]]) -> None:
    while timers:
        timers.pop(0)()
