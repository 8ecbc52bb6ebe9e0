"""The files of the project, as tidy tests read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


PACKAGE = ROOT / "src" / "dhsched"


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def document(name: str) -> str:
    return (ROOT / name).read_text()


TEXT = {".py", ".lua", ".txt", ".md", ".toml", ".tla", ".cfg", ".lock", ".yml", ".yaml", ".html", ".js", ".mjs", ""}


PLACES = ("src", "tests", "docs", "spec", "evaluation", "examples", "requirements", "deploy", ".ci")


def texts() -> Iterator[Path]:
    # `.git` is a file in a work tree that stands beside another one.
    yield from (
        path for path in sorted(ROOT.iterdir()) if path.is_file() and path.suffix in TEXT and path.name != ".git"
    )
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            made = "__pycache__" in path.parts or ".egg-info" in str(path)
            if path.is_file() and path.suffix in TEXT and not made:
                yield path
