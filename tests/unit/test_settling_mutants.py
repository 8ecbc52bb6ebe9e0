"""Mutants of the settled replies, which their unit tests must notice.

That `settle` writes is noticed by real servers: tests/integration/test_settling.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from dhsched.store.link import link, settling
from tests.unit.mutants import Mutant, first_failure, mutated_tests, runs_of

PRODUCT = {"settling": settling, "link": link}  # As they import each other.
TESTS = ("test_link_settling",)

MUTANTS = {
    "tells before it settles": Mutant("settling", "self.answered.append((call, reply))", "call.answer(reply)"),
    "does not compare the name behind WAIT": Mutant(
        "settling", "zip(asked, answers, strict=True)", "zip(asked[:-1], answers[:-1], strict=True)"
    ),
    "does not compare the name at the write": Mutant(
        "settling", "zip(asked, answers, strict=True)", "zip(asked[1:], answers[1:], strict=True)"
    ),
    "takes any number of replicas": Mutant("settling", "if reached < required.replicas:", "if reached < 1:"),
    "does not look at its own disk": Mutant("settling", '"" if here else', '"" if True else'),
    "sends batches one after the other": Mutant("link", "if settling is not None and settling.waits:", "if False:"),
    "tells a batch that is not settled": Mutant("settling", "        if result.settled:\n", "        if True:\n"),
    "tells in any order": Mutant("settling", "for call, reply in calls:", "for call, reply in reversed(calls):"),
    "forgets the deadline of what waits to be told": Mutant(
        "link", "nearest = min(nearest, self.settling.sweep(now))", "pass"
    ),
    "keeps what waits when the connection is lost": Mutant(
        "link", "self.settling.lost(self._connector.trouble)", "pass"
    ),
    "keeps what waits when the link is closed": Mutant("link", 'self.settling.lost("we closed it")', "pass"),
    "does not leave a server of another home": Mutant("settling", "        self._after_refusal(refusal)\n", ""),
    "waits for replicas of a home that ended": Mutant(
        "settling", "if self.waits and self._wire.leaving is not None:", "if False:"
    ),
    "settles subscriptions": Mutant("settling", "if all(type(call) is not Call for call in calls):", "if False:"),
    "stops after the first batch": Mutant("settling", "self._loop.call_soon(self._wire.on_writable)", "pass"),
    "does not wait for callers that are told": Mutant(
        "settling", "self._loop.call_soon(self._wire.on_writable)", "self._wire.on_writable()"
    ),
    "does not settle a call that is tried alone": Mutant(
        "link", "        self.bytes_out += self._send([call])\n", "        self.bytes_out += self._wire.send([call])\n"
    ),
    "never says that it settles again": Mutant("settling", "                self._unsettled_since = None\n", ""),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Mutants complain."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_the_tests_pass_without_a_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = mutated_tests(monkeypatch, PRODUCT, TESTS, None)
    assert sum(1 for each in tests for _ in runs_of(each)) > 25
    assert first_failure(tests, limit_s=60) is None


@pytest.mark.release
@pytest.mark.parametrize("name", MUTANTS)
def test_the_tests_notice_a_mutant_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_failure(mutated_tests(monkeypatch, PRODUCT, TESTS, MUTANTS[name])) is not None
