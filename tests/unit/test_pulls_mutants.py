"""Mutants of the pulls, which the unit tests of the pulls must notice."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from dhsched.infer import granted_pull, pulls
from tests.unit import pulling
from tests.unit.mutants import Mutant, first_failure, mutated_tests, runs_of

PRODUCT = {"granted_pull": granted_pull, "pulls": pulls, "pulling": pulling}  # As they import each other.
TESTS = ("test_granted_pull", "test_pulls", "test_pulls_through")


MUTANTS = {
    # GrantedPull: the next release
    "forgets what is due while a release is under way": Mutant(
        "granted_pull", "            self.serving = AGAIN\n", "            pass\n"
    ),
    "asks twice for what is queued": Mutant(
        "granted_pull", "if self.serving is IDLE:\n", "if self.serving is not SENT:\n"
    ),
    "does not go on after again": Mutant("granted_pull", "if self.serving is AGAIN or expected", "if expected"),
    "does not compare what was stored with what was released": Mutant(
        "granted_pull", "if self.serving is AGAIN or expected > self.after:", "if self.serving is AGAIN:"
    ),
    "expects whatever was stored last": Mutant("granted_pull", "max(self.expects, outcome.seq)", "outcome.seq"),
    "expects an item for ever": Mutant(
        "granted_pull", "expected, self.expects = self.expects, 0", "expected = self.expects"
    ),
    "asks for every item once more": Mutant(
        "granted_pull", "self.serving is IDLE and outcome.seq > self.after", "self.serving is IDLE"
    ),
    "trusts that the release ran behind the append": Mutant(
        "granted_pull", "elif self.serving is IDLE and outcome.seq > self.after", "elif self.after < 0"
    ),
    "takes an append without an answer for refused": Mutant(
        "granted_pull", "elif isinstance(outcome, StoreError):", "elif self.after < 0:"
    ),
    "goes through while a release is under way": Mutant(
        "granted_pull", "if self.serving is not IDLE or self.at_window", "if self.serving is GONE or self.at_window"
    ),
    "goes through behind the window": Mutant(
        "granted_pull", "or self.at_window or not self.after", "or not self.after"
    ),
    "goes through with the first item": Mutant(
        "granted_pull", "or self.at_window or not self.after", "or self.at_window"
    ),
    "lets two appends go through": Mutant(
        "granted_pull", "        self.serving = SENT\n        return self._text(", "        return self._text("
    ),
    "takes a stored item for a released one": Mutant(
        "granted_pull", "isinstance(outcome, o.Appended) and outcome.mark:", "isinstance(outcome, o.Appended):"
    ),
    "waits for a release that nobody asked for": Mutant(
        "granted_pull", "        return self.release_failed()\n", "        return NO_STEP\n"
    ),
    "passes an item on to a later pull": Mutant(
        "pulls", "answered = pull is through", "answered = through is not None"
    ),
    "goes through to a full connection": Mutant(
        "pulls", "elif quiet and not pull.peer.outbox.full and (", "elif quiet and ("
    ),
    "goes through under load": Mutant("pulls", "elif quiet and not pull.peer", "elif not pull.peer"),
    "stays blocked": Mutant("granted_pull", "if self.serving is BLOCKED:", "if self.serving is GONE:"),
    "does not stop for a full connection": Mutant(
        "granted_pull", "            self.serving = BLOCKED\n", "            pass\n"
    ),
    "serves a pull that is gone": Mutant(
        "granted_pull", "        if self.serving is GONE:\n            return NOTHING, message\n", ""
    ),
    "serves a pull that is gone, after a release that failed": Mutant(
        "granted_pull", "        if self.serving is GONE:\n            return NO_STEP\n", ""
    ),
    "carries what it expects over a release that failed": Mutant(
        "granted_pull",
        "        self.expects = 0\n        if self.serving is GONE:\n            return NO_STEP\n",
        "        if self.serving is GONE:\n            return NO_STEP\n",
    ),
    "keeps the cursor of the first release": Mutant(
        "granted_pull",
        "self.after, self.mark = outcome.first + len(items) - 1, items[-1][MARK]",
        "self.after = self.after",
    ),
    "goes on behind an item too many": Mutant(
        "granted_pull", "outcome.first + len(items) - 1, items", "outcome.first + len(items), items"
    ),
    # GrantedPull: the window
    "forgets a window that is full": Mutant("granted_pull", "self.at_window = outcome.more", "self.at_window = False"),
    "forgets a window that is still full": Mutant(
        "granted_pull", "self.at_window = self.after > self.acked", "self.at_window = False"
    ),
    "takes every release for a full window": Mutant(
        "granted_pull", "self.at_window = outcome.more", "self.at_window = True"
    ),
    "releases nothing after an ack": Mutant(
        "granted_pull", "return self.due() if self.at_window else NO_STEP", "return NO_STEP"
    ),
    "releases after every ack": Mutant(
        "granted_pull", "return self.due() if self.at_window else NO_STEP", "return self.due()"
    ),
    "lets the ack cursor go back": Mutant(
        "granted_pull", "self.acked = max(self.acked, outcome.acked)", "self.acked = outcome.acked"
    ),
    # GrantedPull: acks
    "keeps an ack that was sent": Mutant(
        "granted_pull",
        "self.ack_queued, self.ack_n, self.ack_saved, self.ack_journal, self.ack_bytes = False, 0, None, None, 0",
        "self.ack_queued = False",
    ),
    "keeps a state that was sent": Mutant(
        "granted_pull",
        "self.ack_n, self.ack_saved, self.ack_journal, self.ack_bytes = False, 0, None, None, 0",
        "self.ack_n, self.ack_journal, self.ack_bytes = False, 0, None, 0",
    ),
    "keeps a journal that was sent": Mutant(
        "granted_pull",
        "self.ack_saved, self.ack_journal, self.ack_bytes = False, 0, None, None, 0",
        "self.ack_saved, self.ack_bytes = False, 0, None, 0",
    ),
    "lets an earlier ack replace a later one": Mutant("granted_pull", "if n >= self.ack_n:", "if n >= 0:"),
    "loses a state that is followed by an ack without one": Mutant(
        "granted_pull",
        "        if saved is not None:\n            self.ack_saved = saved\n",
        "        self.ack_saved = saved\n        if saved is not None:\n",
    ),
    "loses a journal that is followed by another": Mutant(
        "granted_pull", "journal if self.ack_journal is None else joined(self.ack_journal, journal)", "journal"
    ),
    "loses the journal of an ack that failed": Mutant(
        "granted_pull", "self.ack(ack.n, ack.mark, saved, ack.journal)", "self.ack(ack.n, ack.mark, saved)"
    ),
    "lets the journal of a failed ack replace a later one": Mutant(
        "granted_pull", "        if queued is not None:\n", "        if False:\n"
    ),
    "does not tell that a journal was refused": Mutant(
        "granted_pull", "return NOTHING, self._journal_refused(outcome)", "return NO_STEP"
    ),
    "puts no bound on the bytes of acks": Mutant("granted_pull", "self.ack_bytes += journal.bytes", "pass"),
    "puts no bound on the bytes of states": Mutant("granted_pull", "self.ack_bytes += len(saved)", "pass"),
    "lets the state of a failed ack replace a later one": Mutant(
        "granted_pull", "if self.ack_queued:\n            if", "if False:\n            if"
    ),
    "loses the state of an ack that failed": Mutant(
        "granted_pull", "        saved = ack.saved\n", "        saved = None\n"
    ),
    "forgets the newest state that is on its way": Mutant(
        "granted_pull", "self.newest, self.newest_n = saved, n", "pass"
    ),
    "keeps the newest state for ever": Mutant("granted_pull", "            self.newest = None\n", "            pass\n"),
    "joins the journals of two acks that failed as they come": Mutant(
        "granted_pull", "joined(*sorted((again, queued), key=FIRST))", "joined(again, queued)"
    ),
    "sends an ack of what was not released": Mutant("granted_pull", "if n > self.after:", "if n < 0:"),
    "queues an ack twice": Mutant("granted_pull", "        if self.ack_queued:\n            return NO_STEP\n", ""),
    # GrantedPull: the end
    "tells a Worker that went to another socket to stop": Mutant(
        "granted_pull", "elif outcome.current != Generation(self.worker, self.epoch):", "elif True:"
    ),
    "does not tell that the live is elsewhere": Mutant(
        "granted_pull", "elif outcome.current != Generation(self.worker, self.epoch):", "elif False:"
    ),
    "goes on after the last ack": Mutant(
        "granted_pull", "isinstance(outcome, o.Acked) and not outcome.ended", "isinstance(outcome, o.Acked)"
    ),
    # Pulls
    "releases before it acks": Mutant(
        "pulls", "(self._acks, self._appends_here,", "(self._releases, self._acks, self._appends_here,"
    ),
    "acks behind what is pushed": Mutant(
        "pulls",
        "(self._acks, self._appends_here, self._appends_elsewhere,",
        "(self._appends_here, self._appends_elsewhere, self._acks,",
    ),
    "releases nothing behind an own append": Mutant(
        "pulls",
        "                if (step := pull.due()) is not NO_STEP:\n                    self._act(pull, step)\n",
        "",
    ),
    "asks for a hint that it does not need": Mutant("pulls", 'for name in (controller, "")', 'for name in ("", "")'),
    "gets no hints for pulls elsewhere": Mutant(
        "pulls", 'for name in (controller, "")', "for name in (controller, controller)"
    ),
    "does not look whether a pull was granted meanwhile": Mutant(
        "pulls", "if answered else pull.append_answered(outcome)", "if answered else NO_STEP"
    ),
    "ignores hints": Mutant("pulls", "self._granted.get(live.decode())", "None"),
    "counts items for ever": Mutant("pulls", "        self._appending -= len(rows)\n", ""),
    "lets items wait without a limit": Mutant("pulls", "self._appending >= APPENDS_MAX", "self._appending < 0"),
    "answers before it returns": Mutant("pulls", "self._loop.call_soon(done, refused)", "done(refused)"),
    "releases into a full connection": Mutant("pulls", "if pull.peer.outbox.full:", "if False:"),
    "serves the earlier of two pulls": Mutant(
        "granted_pull", "> (other.epoch, other.pull_no)", "< (other.epoch, other.pull_no)"
    ),
    "compares pulls of two homes": Mutant("granted_pull", "self.home == other.home and ", ""),
    "tells a superseded pull of the same generation to stop": Mutant(
        "pulls", "if before.epoch != pull.epoch:", "if True:"
    ),
    "keeps a pull that is over": Mutant("pulls", "self.drop(pull)\n            elif do", "pass\n            elif do"),
    "makes what is pushed wait for calls": Mutant("pulls", "calls_max=math.inf", "calls_max=2"),
    "gives up acks that failed": Mutant("pulls", "self._act(pull, pull.ack_failed(ack))", "None"),
    "gives up releases that failed": Mutant("pulls", "self._act(pull, pull.release_failed())", "None"),
    # Gather
    "does not split a call that ended half-way": Mutant(
        "pulls", "if len(rows) > 1 and isinstance(outcomes, StoreRefused) and outcomes.half_way:", "if False:"
    ),
    "splits every call that failed": Mutant("pulls", "and outcomes.half_way", ""),
    "splits a call of one row for ever": Mutant("pulls", "if len(rows) > 1 and isinstance", "if isinstance"),
    "retries nothing": Mutant(
        "pulls", "            self._loop.call_later(RETRY_S, self._retry_all, rows, requests)\n", ""
    ),
    "leaves rows that wait behind a call that came back": Mutant(
        "pulls",
        "nobody else may be about to flush.\n            self._flush_soon()\n",
        "nobody else may be about to flush.\n            pass\n",
    ),
    "sends as many calls as there are": Mutant("pulls", "and self._calls < self._calls_max", ""),
    "never counts a call as back": Mutant("pulls", "        self._calls -= 1\n", ""),
    "sends calls of any length": Mutant("pulls", "self.waiting[:ROWS_MAX]", "self.waiting[:]"),
    "sends calls of any size": Mutant("pulls", "if size_bytes >= BYTES_FULL:", "if False:"),
    "loses what does not fit into a call": Mutant(
        "pulls", "        del self.waiting[: len(rows)]\n", "        self.waiting.clear()\n"
    ),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Mutants complain."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)
    structlog.reset_defaults()


def test_the_tests_pass_without_a_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = mutated_tests(monkeypatch, PRODUCT, TESTS, None)
    assert sum(1 for each in tests for _ in runs_of(each)) > 80
    assert first_failure(tests) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_the_tests_notice_a_mutant_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_failure(mutated_tests(monkeypatch, PRODUCT, TESTS, MUTANTS[name])) is not None
