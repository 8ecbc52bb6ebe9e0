"""The source files of a runtime that `dhsched dev` reloads: finds them, notices changes, checks that they parse.

Files are read again and again, because that needs no library and works on every file system. A change counts when
the files are the same in two readings in a row: an editor or a checkout that writes several files is one change.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from dhsched.errors import BadSetting

FILES_MAX = 2_000  # Further files are not watched: the folder is no source folder then.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
Snapshot = Mapping[Path, tuple[int, int]]


def folder_of(runtime: str) -> Path:
    """Return the folder to watch for `package.module:function`: the one that the package, or the module, is in."""
    module, colon, _ = runtime.partition(":")
    if not colon:
        raise BadSetting(f"runtime {runtime!r} is not of the form package.module:function")
    top = module.partition(".")[0]
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # As the Workers have it, which are started with `python -m`.
    found = importlib.util.find_spec(top)
    if found is None or found.origin is None:
        raise BadSetting(f"runtime {runtime!r}: there is no module {top} in this folder or among what is installed")
    return Path(found.origin).resolve().parent


def snapshot(folder: Path) -> Snapshot:
    """Return time and size of each Python file under the folder."""
    found: dict[Path, tuple[int, int]] = {}
    for path in sources(folder):
        try:
            stat = path.stat()
        except OSError:
            continue  # Deleted meanwhile.
        found[path] = (stat.st_mtime_ns, stat.st_size)
        if len(found) == FILES_MAX:
            break
    return found


def sources(folder: Path) -> Iterator[Path]:
    """Yield the Python files under a folder, without what is hidden, installed or in a virtual environment."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            each
            for each in folders
            if each not in SKIPPED and not each.startswith(".") and not Path(here, each, "pyvenv.cfg").exists()
        )
        yield from (Path(here, name) for name in sorted(files) if name.endswith(".py") and name[0] != ".")


class Sources:
    """The files as they were loaded last, and as they were last read."""

    def __init__(self, loaded: Snapshot) -> None:
        self._loaded = loaded
        self._seen = loaded

    def changed(self, now: Snapshot) -> list[Path]:
        """Return the files that have changed since they were loaded, once they stand still; else nothing."""
        still, self._seen = now == self._seen, now
        if not still or now == self._loaded:
            return []
        before, self._loaded = self._loaded, now
        return sorted(path for path in {*before, *now} if before.get(path) != now.get(path))


def syntax_error(paths: list[Path]) -> str:
    """Return where the first file is wrong that does not parse; empty if all do."""
    for path in paths:
        try:
            compile(path.read_bytes(), str(path), "exec")
        except SyntaxError as error:
            return f"{path.name}, line {error.lineno}: {error.msg}"
        except (OSError, ValueError) as error:
            if path.exists():
                return f"{path.name}: {error}"
    return ""
