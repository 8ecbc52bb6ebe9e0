"""`make statements`: how much code `src` has: statements and public docstrings, per package.

A string that stands alone documents what is above it and is no statement. Public are all modules, and the classes and
functions of a module or of a public class whose names have no leading underscore.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "src/dhsched"

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Size(NamedTuple):
    """The size of some source: its statements, and the docstrings of what is public in it."""

    statements: int = 0
    docstrings: int = 0

    def plus(self, other: Size) -> Size:
        return Size(self.statements + other.statements, self.docstrings + other.docstrings)


def size_of(source: str) -> Size:
    tree = ast.parse(source)
    statements = sum(isinstance(node, ast.stmt) and not is_text(node) for node in ast.walk(tree))
    return Size(statements, sum(ast.get_docstring(each) is not None for each in public(tree)))


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def public(of: Definition) -> Iterator[Definition]:
    """The definition itself and what is public in it; what a function defines inside is its own business."""
    yield of
    if isinstance(of, ast.Module | ast.ClassDef):
        for node in of.body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                yield from public(node)


def sources_now() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        yield path.relative_to(ROOT / PACKAGE).as_posix(), path.read_text()


def sources_of(revision: str) -> Iterator[tuple[str, str]]:
    packed = subprocess.run(["git", "archive", revision, PACKAGE], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.name.endswith(".py") and (file := archive.extractfile(member)) is not None:
                yield member.name.removeprefix(f"{PACKAGE}/"), file.read().decode()


def sizes(sources: Iterator[tuple[str, str]]) -> dict[str, Size]:
    """The size of each package, and of all of them as `total`. Modules beside the packages are the package `.`."""
    found: dict[str, Size] = {}
    for path, source in sources:
        size = size_of(source)
        for package in (path.partition("/")[0] if "/" in path else ".", "total"):
            found[package] = found.get(package, Size()).plus(size)
    return found


def print_table(columns: Mapping[str, Mapping[str, Size]]) -> None:
    print(" " * 12 + "".join(f"{name:>24}" for name in columns))
    print("package     " + f"{'statements':>12}{'docstrings':>12}" * len(columns))
    packages = {package for column in columns.values() for package in column}
    for package in sorted(packages, key=lambda package: (package == "total", package)):
        cells = [column.get(package, Size()) for column in columns.values()]
        print(f"{package:12}" + "".join(f"{cell.statements:12,}{cell.docstrings:12,}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.statements", description=__doc__)
    parser.add_argument("--against", nargs="*", default=[], metavar="REVISION", help="the same of these git revisions")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    given = parser.parse_args()
    columns = {revision: sizes(sources_of(revision)) for revision in given.against} | {"now": sizes(sources_now())}
    print_table(columns)
    if given.json:
        rows = {name: {package: size._asdict() for package, size in found.items()} for name, found in columns.items()}
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
