"""`dhsched dev`: which files it watches, when they have changed, and how it prints the lines of a Worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dhsched.cli import dev_lines
from dhsched.cli.dev_sources import Sources, folder_of, snapshot, syntax_error
from dhsched.errors import BadSetting

A, B = Path("a.py"), Path("b.py")


def test_a_change_counts_once_the_files_stand_still() -> None:
    sources = Sources({A: (1, 1)})
    assert sources.changed({A: (1, 1)}) == []
    assert sources.changed({A: (2, 1)}) == [], "it may still be written"
    assert sources.changed({A: (2, 1), B: (3, 3)}) == []
    assert sources.changed({A: (2, 1), B: (3, 3)}) == [A, B]
    assert sources.changed({A: (2, 1), B: (3, 3)}) == [], "it was said already"
    assert sources.changed({B: (3, 3)}) == []
    assert sources.changed({B: (3, 3)}) == [A]


def test_a_change_that_is_taken_back_is_none() -> None:
    sources = Sources({A: (1, 1)})
    assert sources.changed({A: (2, 1)}) == []
    assert sources.changed({A: (1, 1)}) == [] and sources.changed({A: (1, 1)}) == []


def test_only_source_files_are_watched(tmp_path: Path) -> None:
    for name in (
        "mine.py",
        "sub/part.py",
        ".git/hook.py",
        ".#mine.py",
        "env/pyvenv.cfg",
        "env/lib.py",
        "notes.txt",
        "build/x.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("pass")
    assert {path.relative_to(tmp_path).as_posix() for path in snapshot(tmp_path)} == {"mine.py", "sub/part.py"}


def test_a_syntax_error_is_one_sentence(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("x = 1")
    bad.write_text("x = 1\ndef f(:\n")
    assert syntax_error([good, tmp_path / "deleted.py"]) == ""
    assert syntax_error([good, bad]).startswith("bad.py, line 2: ")


def test_the_folder_is_that_of_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_dev_runtime.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert folder_of("my_dev_runtime:avatar") == tmp_path.resolve()
    with pytest.raises(BadSetting, match="there is no module nowhere_at_all"):
        folder_of("nowhere_at_all:avatar")
    with pytest.raises(BadSetting, match="not of the form"):
        folder_of("avatar")


def lines(line: str, *, colours: bool = False) -> list[str]:
    return dev_lines.lines_of("worker-1", line.encode() + b"\n", colours=colours)


def test_a_logged_line_names_its_live_and_its_generation() -> None:
    logged = {"event": "opened", "level": "info", "timestamp": "now", "model": "anna", "live": "t/hello", "epoch": 2}
    assert lines(json.dumps(logged)) == ["hello@2        opened model=anna"]
    crash = {**logged, "event": "crashed", "level": "error", "exception": "Traceback\nValueError: no"}
    assert lines(json.dumps(crash)) == [
        "hello@2        error: crashed model=anna",
        "hello@2        Traceback",
        "hello@2        ValueError: no",
    ]
    assert lines('{"event": "registered", "pool": "gpu"}') == ["worker-1       registered pool=gpu"]


def test_other_lines_are_printed_as_they_are_without_control_characters() -> None:
    assert lines("WARNING lib: slow live=t/hello") == ["hello          WARNING lib: slow live=t/hello"]
    assert lines("printed \x1b[2J") == ["worker-1       printed \\x1b[2J"]
    assert lines('{"not": "a log"}') == ['worker-1       {"not": "a log"}']
    assert lines("{broken") == ["worker-1       {broken"]


def test_each_live_has_a_colour_that_outlives_its_generations() -> None:
    def colour(live: str, epoch: int) -> str:
        [line] = lines(json.dumps({"event": "x", "live": live, "epoch": epoch}), colours=True)
        return line.partition("m")[0]

    assert colour("t/a", 1) == colour("t/a", 2) and colour("t/a", 1).startswith("\x1b[")
    assert lines("of no live", colours=True) == ["worker-1       of no live"]
    assert len({colour(f"t/live-{n}", 1) for n in range(40)}) > 3
