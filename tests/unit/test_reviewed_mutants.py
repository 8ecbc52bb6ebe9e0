"""Mutants that a review found to survive: each must be noticed, for ever.

Those of the pulls of a controller and of the Lua steps have tables of their own, and are named here. The others are
here: one text of one module, whose functions get the mutant's code while the unit tests of the module run
(tests/mutation/swap.py).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.mutants import MUTANTS as LUA
from tests.harness import linking
from tests.mutation.swap import swap

HERE = Path(__file__).parent
PATIENCE_S = 1.0  # A mutant may leave a test waiting: then it is noticed after this time, not after a minute.

IN_PULLS = (
    "serves the earlier of two pulls",
    "tells a Worker that went to another socket to stop",
    "tells a superseded pull of the same generation to stop",
    "gives up releases that failed",
    "gives up acks that failed",
    "retries nothing",
)
IN_LUA = {
    "release_input": (
        *("release-runs-past-the-next-boundary", "next-hold-is-not-set"),
        *("closing-has-no-last-boundary", "closing-has-boundaries-everywhere"),
        *("release-from-released", "repeated-boundary-holds", "repeat-moves-the-boundary"),
    ),
    "report": ("revived-worker-is-not-woken", "revival-of-a-cordoned-one-tells-nobody"),
    "append_input": ("producer-duplicate-accepted", "request-duplicate-accepted", "gap-accepted", "queue-unbounded"),
    "look": ("first-look-recovers", "look-before-it-is-due", "unacked-is-fine", "swept-live-stays-listed"),
    "place": ("live-is-not-listed",),
}


class Reviewed(NamedTuple):
    """`now` instead of `text`, which occurs once in `module`; `tests` is the file of unit tests that must notice it."""

    module: str
    text: str
    now: str
    tests: str


def worker(text: str, now: str) -> Reviewed:
    return Reviewed("dhsched.worker.pull_client", text, now, "test_pull_client")


def stream(text: str, now: str) -> Reviewed:
    return Reviewed("dhsched.client.stream", text, now, "test_client_stream")


MUTANTS = {
    "accepts items of an older pull": worker(" or stream.pull_no != said.pull_no:", ":"),
    "accepts items of another connection": worker(
        "stream.connection is not connection or stream.pull_no != said", "stream.pull_no != said"
    ),
    "lets an older pull replace a newer one": worker(" or said.pull_no <= stream.pull_no:", ":"),
    "does not repeat the last ack": worker(
        "            self._ack(stream, stream.ack_saved, stream.inbox.journal_since(said.journal_last))\n",
        "            pass\n",
    ),
    "stops a generation for the end of another": worker(
        "if (stream := self._streams.get((live, epoch))) is None:",
        "if (stream := next(iter(self._streams.values()), None)) is None:",
    ),
    "watches lives of the tenant that a query names": Reviewed(
        "dhsched.infer.events",
        "live = live_key(caller.tenant, live_id)",
        'live = live_key(request.query.get("tenant", caller.tenant), live_id)',
        "test_infer_events",
    ),
    "recovers whatever generation is the current one": Reviewed(
        "dhsched.dispatch.recovery.recover",
        "intent = self._intent(live, work, choice)",
        "work = __import__('dataclasses').replace(work, epoch=(await context.records.lives.get(live)).epoch)\n"
        "        intent = self._intent(live, work, choice)",
        "test_recover",
    ),
    "takes a gap for final": stream('problem.get("code") in PAUSES:', 'problem.get("code") in PAUSES - {"GAP"}:'),
    "takes a new name at an idle reconnect": stream(
        "            self._replicas.leave(url)\n",
        "            self._replicas.leave(url)\n            self._unanswered or self._take_new_name()\n",
    ),
    "says that it is prepared before its runtime is built": Reviewed(
        "dhsched.worker.inbox", "return self.session._claimed and not", "return not", "test_session_agent"
    ),
    "asks for a report of what is prepared before its runtime is built": Reviewed(
        "dhsched.worker.agent",
        "            self._empty.clear()\n",
        "            self._empty.clear()\n            self._say_prepared and self._say_prepared()\n",
        "test_session_agent",
    ),
}


def test_the_tables_have_those_of_the_pulls_and_of_the_steps() -> None:
    of_pulls = (HERE / "test_pulls_mutants.py").read_text()
    assert [name for name in IN_PULLS if f'"{name}": Mutant(' not in of_pulls] == []
    there = {(each.file, each.name) for each in LUA}
    assert {(file, name) for file, names in IN_LUA.items() for name in names} <= there


@pytest.mark.parametrize("name", MUTANTS)
def test_the_tests_notice_a_mutant_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, text, now, tests = MUTANTS[name]
    path = str(importlib.import_module(module).__file__)
    source = Path(path).read_text()
    assert source.count(text) == 1, f"{module} has {source.count(text)} times {text!r}"
    monkeypatch.setattr(linking.eventually, "__defaults__", (PATIENCE_S,))
    mutant = source.replace(text, now)
    assert swap(source, mutant, path), f"no function of {module} has changed"
    try:
        ended = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:timeout", str(HERE / f"{tests}.py")])
    finally:
        swap(mutant, source, path)
    assert ended == pytest.ExitCode.TESTS_FAILED
