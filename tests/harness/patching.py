"""Put a function in the place of another one, wherever it was imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spec.patching import users_of


def everywhere(patch: pytest.MonkeyPatch, name: str, function: Callable[..., Any]) -> None:
    for module in users_of(name):
        patch.setattr(module, name, function)
