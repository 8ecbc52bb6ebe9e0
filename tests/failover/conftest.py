"""Every test here is marked `failover`, runs over real servers, and shows its figures in the table at the end."""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from dhsched.store import homes
from tests.conftest import REAL_JUMP
from tests.harness.failover import Figures
from tests.harness.on_uvloop import end_from_a_thread, log_plainly, loop_factories
from tests.harness.servers import kind

__all__ = ["kind"]

Show = Callable[[Figures], None]
FIGURES = "failover figures"
HEADS = {"gap_s": "gap s", "restarted": "restarted lives", "elsewhere_s": "longest elsewhere s"}

log_plainly()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return loop_factories()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runs", type=int, default=1, help="How often each test of a failover runs.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (runs := metafunc.config.getoption("--runs")) > 1:
        metafunc.fixturenames.append("run")
        metafunc.parametrize("run", [f"run{n}" for n in range(runs)])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    end_from_a_thread(items, here)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.failover)


@pytest.fixture(autouse=True)
def jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers jump here as they do in the product."""
    monkeypatch.setattr(homes, "random_jump", REAL_JUMP)


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Show:
    """Call it once with the test's figures, before anything is asserted."""

    def show(figures: Figures) -> None:
        line = row(figures)
        request.node.user_properties.append((FIGURES, line))
        print(dict(zip(heads(), line, strict=True)))

    return show


def heads() -> list[str]:
    return [HEADS.get(name, name) for name in Figures._fields if name != "lives"]


def row(figures: Figures) -> list[str]:
    shown = {**figures._asdict(), "restarted": f"{figures.restarted} of {figures.lives}"}
    for name in ("gap_s", "elsewhere_s"):
        shown[name] = "-" if math.isnan(shown[name]) else f"{shown[name]:.2f}"
    return [str(shown[name]) for name in Figures._fields if name != "lives"]


def rows(reporter: pytest.TerminalReporter) -> Iterator[list[str]]:
    for verdict in ("passed", "failed", "xfailed", "xpassed"):
        for report in reporter.stats.get(verdict, []):
            for name, line in getattr(report, "user_properties", []):
                if name == FIGURES and report.when == "call":
                    yield [report.nodeid.rpartition("::")[2], verdict, *line]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if found := sorted(rows(terminalreporter)):
        table = [["test", "", *heads()], *found]
        widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
        terminalreporter.section("what each failover showed")
        for line in table:
            terminalreporter.write_line("  ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)))
        for test, gaps in sorted(runs_of(found).items()):
            if len(gaps) > 1:
                terminalreporter.write_line(f"{test}: median gap {median(gaps):.2f} s of {len(gaps)} runs")


def runs_of(found: list[list[str]]) -> dict[str, list[float]]:
    """The gaps of each test that ran several times: `--runs` puts the number of the run into its name."""
    gaps: dict[str, list[float]] = defaultdict(list)
    for name, _, gap, *_ in found:
        if gap != "-":
            gaps[re.sub(r"-run\d+", "", name)].append(float(gap))
    return gaps
