"""A clock that the test moves: what a replica concludes from time does not depend on how fast the machine is."""

from __future__ import annotations

import pytest

from dhsched.dispatch.context import DispatchContext


class Clock:
    """The monotonic clock of every replica in this process. It stands still until `pass_s` moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now_s = 1_000.0
        monkeypatch.setattr(DispatchContext, "loop_time", lambda _: self._now_s)

    def pass_s(self, seconds: float) -> None:
        self._now_s += seconds
