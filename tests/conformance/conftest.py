"""The option --rewrite, which corrects the outcomes in tests/scenarios/*.txt before the tests run (rewrite.py)."""

from pathlib import Path

import pytest

from tests.conformance.rewrite import rewrite_all
from tests.scenarios.language import SCENARIOS

REWRITTEN = pytest.StashKey[list[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the model's outcomes into tests/scenarios/*.txt")


def pytest_configure(config: pytest.Config) -> None:
    # A run that begins elsewhere comes here after its options were read; a worker of xdist has a parent that rewrites.
    if config.getoption("--rewrite", default=False) and not hasattr(config, "workerinput"):
        config.stash[REWRITTEN] = rewrite_all(SCENARIOS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if REWRITTEN in config.stash:
        changed = [str(path.relative_to(config.rootpath)) for path in config.stash[REWRITTEN]]
        terminalreporter.write_line(f"--rewrite changed {', '.join(changed) or 'no scenario'}")
