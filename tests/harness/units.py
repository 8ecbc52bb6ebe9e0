"""The systemd units of deploy/systemd, read as far as tests need it."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from tests.harness.tree import ROOT

SYSTEMD = ROOT / "deploy" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))


def section(unit: Path, name: str) -> dict[str, str]:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return dict(parser[name])


def service(unit: Path) -> dict[str, str]:
    return section(unit, "Service")


def role(unit: Path) -> str:
    return unit.stem.removeprefix("dhsched-").removesuffix("@")
