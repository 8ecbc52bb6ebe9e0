"""For all tests. Some encode media in the test's own process, and others start processes from it.

FFmpeg's objects may own threads, which a forked child does not have: one that is collected there, before the child has
become another program, waits for them for ever, and whoever forked waits for the child. So no garbage is collected
from a fork on; here it goes on behind it.
"""

import gc
import os
import tempfile
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest
import typer.testing
from typer.main import get_command

from dhsched.store import homes
from dhsched.store.link.connect import LinkSettings

STATE = tempfile.TemporaryDirectory(prefix="dhsched-tests-")
os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = STATE.name
"""Keys that deployments of this user have left for their addresses are no keys of what a test starts there, and no test
calls a deployment of this user's contexts."""

REAL_JUMP = homes.random_jump
homes.random_jump = lambda: 0
"""Tests empty the store under a link that goes on. In this process the numbers then begin at 1 again: what jumps is
tested where it matters, and in every process that a test starts."""

LinkSettings.__init__.__kwdefaults__ = {**(LinkSettings.__init__.__kwdefaults__ or {}), "deadline_s": 6.0}
"""A process of a busy machine may stand still for seconds, and that is no failure of a store. Tests of deadlines give
their own."""

typer.testing._get_command = cache(get_command)  # type: ignore[attr-defined]
"""Tests run a few hundred verbs, and building all verbs for each of them would be most of the work."""

os.register_at_fork(before=gc.disable, after_in_parent=gc.enable)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """A failed test is reported as such, and the run goes on.

    Python before 3.11.8 loses count while it parses when a collected object parses too, as one does that dies with an
    exception (CPython issue 106905). Pytest parses the source for its report, and its whole run ends there.
    """
    gc.disable()
    try:
        return (yield)
    except SystemError:
        item.config.option.tbstyle = "native"  # The one style that does not parse the source.
        return pytest.TestReport.from_item_and_call(item, call)
    finally:
        gc.enable()
