"""The option --rewrite, which corrects the outcomes in tests/scenarios/*.txt before the tests run (rewrite.py); and a
real store of each kind of server beside the model. The event loop is uvloop, as in the product.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from tests.conformance.operations import LIMITS
from tests.conformance.real import StoreSubject, real_subject
from tests.conformance.rewrite import rewrite_all
from tests.harness.servers import SERVERS
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


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Random runs on the second server are for the release; scenarios run on both."""
    for item in items:
        on = getattr(item, "callspec", None)
        if on and on.params.get("subject") == "redis" and not item.get_closest_marker("long"):
            item.add_marker(pytest.mark.release)


@pytest.fixture(params=SERVERS, scope="module")
def subject(request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, StoreSubject]]:
    """The Lua steps on a server, and the loop to call them on."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        context = real_subject(request.param, LIMITS)
        yield runner, runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))
