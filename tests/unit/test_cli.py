"""The command: an error is one sentence on standard error, a traceback only on request."""

import pytest
import typer

import dhsched
from dhsched import cli
from dhsched.errors import StoreUnavailable


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
