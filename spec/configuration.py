"""A configuration of TLC, read for the explorer too: both explore the same thing because they read the same file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_CONSTANT = re.compile(r"^\s*(\w+) = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The constants of one .cfg file."""

    name: str
    constants: Mapping[str, Any]

    def __getitem__(self, constant: str) -> Any:
        return self.constants[constant]

    @property
    def on(self) -> frozenset[str]:
        value: frozenset[str] = self.constants["On"]
        return value


def read(name: str) -> Configuration:
    """The configuration spec/<name>.cfg."""
    text = (HERE / f"{name}.cfg").read_text(encoding="utf-8")
    return Configuration(name, {key: _value(value) for key, value in _CONSTANT.findall(text)})


def _value(text: str) -> Any:
    """Numbers, strings and sets of them are all that our configurations use."""
    if text.startswith("{"):
        inner = text.strip("{}").strip()
        return frozenset(_value(part.strip()) for part in inner.split(",")) if inner else frozenset()
    if text.startswith('"'):
        return text.strip('"')
    return int(text)
