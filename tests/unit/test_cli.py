"""The command: an error is one sentence on standard error, a traceback only on request; a verb loads little."""

import importlib
import inspect
import json
import os
import subprocess
import sys
from io import StringIO

import pytest
import typer

import dhsched
from dhsched import cli
from dhsched.cli.tables import table
from dhsched.errors import StoreUnavailable
from dhsched.web.logs import shows_colours


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["dhsched", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"dhsched {dhsched.__version__}\n"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb whose store is down."""

    def fail() -> None:
        raise StoreUnavailable("cannot reach store redis://store:6379: check that it runs", unknown=False)

    app = typer.Typer()
    app.callback()(cli.common)
    app.command("break")(fail)
    monkeypatch.setattr(cli, "app", app)


@pytest.mark.usefixtures("broken")
def test_an_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "break") == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "dhsched: cannot reach store redis://store:6379: check that it runs\n")


@pytest.mark.usefixtures("broken")
def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["dhsched", "--debug", "break"])
    with pytest.raises(StoreUnavailable):
        cli.main()


def test_an_unknown_verb_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "no-such-verb") == 2
    assert run(monkeypatch, "bench", "no-such-bench") == 2


SLOW = (
    *("aiohttp", "asyncio", "prometheus_client", "pydantic", "rich", "structlog"),
    *("dhsched.client.models.lives", "dhsched.placement"),
)
"""Packages that take longer to load than most verbs take."""
LIGHT = (
    ("--help",),
    ("live", "--help"),
    ("live", "ls", "--help"),
    ("live", "ls", "--limit", "7"),
    ("live", "get", "L"),
    ("live", "push", "L", "words", "--infer", "http://127.0.0.1:1"),
    ("worker", "ls"),
    ("worker", "drain", "w#1", "--deadline", "1.5"),
    ("pool", "put", "gpu", "--label", "a", "--label", "b"),
    ("events", "--limit", "3"),
    ("why", "L"),
)
PRINT_LOADED = """
import json, sys
from dhsched.cli import main
try:
    main()
finally:
    print(json.dumps([*sys.modules]), file=sys.stderr)
"""


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_a_verb_loads_no_package_that_takes_longer_than_the_verb(words: tuple[str, ...]) -> None:
    env = {**os.environ, "DHSCHED_URL": "http://127.0.0.1:1"}
    run = subprocess.run([sys.executable, "-c", PRINT_LOADED, *words], env=env, capture_output=True, text=True)
    assert not {*SLOW} & {*json.loads(run.stderr.splitlines()[-1])}
    assert "cannot reach" in run.stderr or words[-1] == "--help", run.stderr


def test_a_column_of_free_text_goes_on_in_the_next_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dhsched.cli.tables.screen_columns", lambda: 40)
    path = "unix:///a/path/that/is/never/broken"
    table(("check", "found"), [["store", f"ready at {path}, no replica"], ["room", ""]], least=(), wrap=True)
    shown = ["CHECK  FOUND", "store  ready at", f"       {path},", "       no replica", "room"]
    assert capsys.readouterr().out.splitlines() == shown


@pytest.mark.parametrize(
    ("environment", "colours"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_colours_are_for_terminals_that_show_them(
    environment: dict[str, str], colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = StringIO()
    assert not shows_colours(stream), "no terminal"
    monkeypatch.setattr(stream, "isatty", lambda: True)
    assert shows_colours(stream) == colours


def test_the_help_has_the_beginning_of_every_docstring() -> None:
    for name, verb in cli.VERBS.items():
        found = getattr(importlib.import_module(verb.module), verb.attribute)
        if not isinstance(found, typer.Typer):
            assert " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split()) == verb.summary, name


def test_values_are_read_as_typer_reads_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (("top", "--every", "99"), "less than or equal to 60"),
        (("top", "--every", "x"), "Invalid value for '--every'"),
        (("live", "ls", "--limit", "0"), "greater than or equal to 1"),
        (("live", "ls", "--limit", "1.5"), "Invalid value for '--limit'"),
        (("live", "create"), "Missing argument"),
    ):
        assert run(monkeypatch, *words) == 2
        assert said in capsys.readouterr().err
