"""Every verb of the command line, with its command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dhsched.cli import VERBS
from dhsched.cli.lazy import load


def every_verb() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words of each verb, and its command; a family is not a verb."""
    for name, verb in VERBS.items():
        command: Any = load(name, verb)
        family = getattr(command, "commands", None)
        if family is None:
            yield (name,), command
        else:
            yield from (((name, each), sub) for each, sub in family.items())
