"""What an experiment is made of: parts to run, tables that come of them, figures, and what to say beside the paper.

A part is a function of plain values that returns rows. Parts run in any order in several processes and are kept, so
that a run that was stopped goes on where it was. Tables, figures and the report are made from the parts' rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]
"""Rows by the name of their CSV file, without its ending."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much to run, and from which seed."""

    quick: bool = False
    seed: int = 1

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def seeds(self, full: int = 30, quick: int = 3) -> range:
        """The common seeds: every policy meets the same workloads."""
        return range(self.seed, self.seed + self.pick(full, quick))


@dataclass(frozen=True, slots=True)
class Part:
    """One call, whose arguments can be written as JSON. `run` is a function at the top of its module."""

    name: str
    run: Callable[..., list[Row]]
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `paper` and `ours` are figures with their unit, `note` says what differs and why."""

    what: str
    paper: str
    ours: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One figure or table of the paper."""

    name: str
    title: str
    paper: str  # Its label in the paper.
    parts: Callable[[Size], list[Part]]
    tables: Callable[[dict[str, list[Row]]], dict[str, list[Row]]]  # By the name of the part.
    draw: Callable[[Tables, Path], list[str]]  # The names of the figures that it drew.
    findings: Callable[[Tables], list[Finding]]
    remarks: Callable[[Tables], list[str]] = field(default=lambda _: [])  # What we chose, and what follows.
    measured: tuple[str, ...] = ()  # Tables that depend on a clock or a network; all others repeat to the byte.
    alone: bool = False  # Its parts use both cores themselves, or measure time.
    uses: tuple[str, ...] = ("ownership", "placement", "simulate", "store")  # A change there makes old parts void.
