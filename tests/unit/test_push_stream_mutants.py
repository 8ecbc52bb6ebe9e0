"""Mutants of a stream of pushes, which the unit tests of the stream must notice."""

from __future__ import annotations

import pytest

from dhsched.infer import append_rules, push_stream
from tests.unit import pushing
from tests.unit.mutants import Mutant, first_failure, mutated_tests, runs_of

PRODUCT = {"append_rules": append_rules, "push_stream": push_stream, "pushing": pushing}  # As they import each other.
TESTS = ("test_push_stream", "test_push_stream_lines")


def stream(text: str, now: str) -> Mutant:
    return Mutant("push_stream", text, now)


MUTANTS = {
    # Answers
    "answers what is done first": stream("while first is not None and first.done:", "while first is not None:"),
    "answers one at a time": stream("while first is not None and first.done:", "if first is not None and first.done:"),
    "counts answers for ever": stream("            self.in_flight -= 1\n", ""),
    "answers a refusal before what was pushed before it": stream(
        "        if line is None:\n            actions.append(answer)",
        "        if True:\n            actions.append(answer)",
    ),
    "takes a repetition for new": stream("answer.duplicate, answer.seq = True, outcome.seq", "answer.seq = 1"),
    "does not say what the store refused": stream("problem.document() if problem else None", "None"),
    "counts tokens that were not stored": stream(
        "        if not isinstance(outcome, DhschedError):\n            answer", "        if True:\n            answer"
    ),
    "counts no tokens behind an item": stream(
        "        tokens = self._tokens.get(line.live_id, 0)\n", "        tokens = 0\n"
    ),
    "counts tokens anew after a pause": stream(
        "                del self._lines[line.live_id]\n",
        "                del self._lines[line.live_id]\n                self._tokens.pop(line.live_id, None)\n",
    ),
    # What is kept
    "keeps a live for ever": stream("                del self._lines[line.live_id]\n", "                pass\n"),
    "keeps a live whose timer was the last": stream(
        "is line:\n            del self._lines[line.live_id]\n", "is line:\n            pass\n"
    ),
    "drops a live with a timer": stream(
        "            if not line.timer_at:\n                del", "            if True:\n                del"
    ),
    "drops the next line of the live with an old timer": stream(
        "and self._lines.get(line.live_id) is line:", "and line.live_id in self._lines:"
    ),
    "drops a live that is being stored when its timer fires": stream("elif line.first is None and", "elif"),
    # What is refused
    "takes a live that is not the stream's": stream(" or (self._live_id and live_id != self._live_id)", ""),
    "takes a push without a live": stream("if not live_id or (self._live_id and", "if (self._live_id and"),
    "serves any number of lives": stream("len(self._lines) >= LINES_MAX", "False"),
    "serves one live too few": stream("len(self._lines) >= LINES_MAX", "len(self._lines) + 1 >= LINES_MAX"),
    "counts tokens of any number of lives": stream("if tokens == 1 and len(self._tokens) >= LINES_MAX:", "if False:"),
    "takes no tokens of a live that it knows": stream("if tokens == 1 and len(self._tokens)", "if len(self._tokens)"),
    "takes numbers without a producer": stream("if n and not self._producer:", "if False:"),
    "fills a full store": stream("if store_full is not None:", "if False:"),
    "takes input over the quota": stream("elif over_quota is not None and", "elif False and"),
    "refuses interrupts over the quota": stream(' and push.kind != "interrupt":', ":"),
    "takes items of any size": Mutant("append_rules", "if len(payload) > bytes_max:", "if False:"),
    # Numbered items
    "sends every item alone": stream(
        "        if not n:\n            line.head", "        if True:\n            line.head"
    ),
    "lets a number overtake tokens": stream(
        "if line.sending is not DIRECT:", "if line.sending is not DIRECT and not n:"
    ),
    "sends items without a number at once": stream(
        "            line.sending = STORING\n        self._send", "        self._send"
    ),
    "goes one at a time for good": stream(
        "            line.sending = DIRECT\n            self._answer", "            self._answer"
    ),
    "sends a numbered item again": stream(
        "            item.row = Append(item.line.live, item.payload, self._producer, n)\n",
        "            item.row = Append(item.line.live, item.payload, self._producer, n)\n"
        "            item.attempts = Attempts(now + self._deadline_s)\n",
    ),
    "forgets the number": stream("if n := item.answer.n:", "if n := 0:"),
    "forgets the boundary": stream(
        "unmarked(push.kind, payload, push.boundary)", "unmarked(push.kind, payload, False)"
    ),
    # Joining
    "joins past the end of a sentence": stream("last.closed = last.boundary = True", "last.boundary = True"),
    "forgets the boundary of a sentence": stream("last.closed = last.boundary = True", "last.closed = True"),
    "misses the end of a sentence before a space": stream('token.rstrip(" ").endswith', "token.endswith"),
    "joins with what is under way": stream("            or last.closed\n", ""),
    "joins for ever, token by token": stream("            or now >= last.closes_at\n", ""),
    "joins up to any size": stream("last.size_bytes + len(payload) > JOINED_BYTES_MAX", "False"),
    "joins one byte too few": stream("len(payload) > JOINED_BYTES_MAX", "len(payload) >= JOINED_BYTES_MAX"),
    "forgets the size": stream("        last.size_bytes += len(payload)\n", ""),
    "keeps an item open that others are behind": stream("            line.tail.closed = True\n", "            pass\n"),
    "joins tokens with an item before": stream("        last = line.tail\n", "        last = line.head\n"),
    "parts tokens at a refused push": stream("        last = line.tail\n", "        last = line.last\n"),
    "sends a push that was refused": stream("while following is not None and following.done:", "while False:"),
    "joins for no time": stream("closes_at=now + self._join_s", "closes_at=now"),
    "begins the time with each token": stream(
        "        last.parts.append(payload)\n",
        "        last.parts.append(payload)\n        last.closes_at = now + self._join_s\n",
    ),
    "joins longer than it may": stream("if not first.closed and now < first.closes_at:", "if not first.closed:"),
    "does not wait for tokens": stream("if not first.closed and now < first.closes_at:", "if False:"),
    "arms no timer": stream("            actions.append(ArmTimer(line, at))\n", ""),
    "arms a timer for each token": stream("if not line.timer_at or line.timer_at > at:", "if True:"),
    "waits for a timer that has fired": stream("        line.timer_at = 0.0\n        if", "        if"),
    "sends two items of one live at once": stream("if line.sending is STORING or line.sending is PAUSED or", "if"),
    "sends while it waits to send again": stream(" or line.sending is PAUSED or first", " or first"),
    "sends nothing behind an item that was answered": stream(
        "            if following is not None:\n                self._advance(line, now, actions)\n", ""
    ),
    "leaves a circle of line and item to the collector": stream(
        "            line.last = None  #", "            pass  #"
    ),
    "takes an item under way from the queue for each answer": stream(
        "if item is line.head:", "if line.head is not None:"
    ),
    # Failures
    "gives up at once": stream("error = item.attempts.failed(outcome, now)", "pass"),
    "sends again what was refused": stream(
        "if isinstance(outcome, StoreUnavailable) and item.attempts", "if item.attempts"
    ),
    "makes another item of it when it sends again": stream(
        "            line.sending = STORING\n            actions.append(line.head)\n",
        "            line.sending = DIRECT\n            self._advance(line, now, actions)\n",
    ),
    "sends again at any timer": stream("elif line.sending is PAUSED and now < line.resume_at:", "elif False:"),
    "never sends again": stream("            actions.append(line.head)\n", ""),
    "never gives up": Mutant("append_rules", "now + RETRY_S < self.give_up_at and", "True and"),
    "gives up past the deadline": Mutant("append_rules", "now + RETRY_S < self.give_up_at", "now <= self.give_up_at"),
    "forgets that a try may have been stored": Mutant(
        "append_rules", "self.unknown = self.unknown or error.unknown", "self.unknown = error.unknown"
    ),
    # The connection
    "reads while too much is in flight": stream(
        "self.reading is OPEN and self.in_flight >= self._in_flight_max", "False"
    ),
    "lets one more be in flight": stream(
        "self.in_flight >= self._in_flight_max", "self.in_flight > self._in_flight_max"
    ),
    "reads from a client that does not read": stream("self.reading is FULL or (", "("),
    "holds back a client for good": stream(
        "        if self.reading is FULL:\n            self.reading = OPEN\n", "        pass\n"
    ),
    "waits for a connection that is gone": stream("(self.reading is OPEN and self.in", "(self.in"),
    "comes back from its end": stream(
        "        if self.reading is OPEN:\n            self.reading = FULL\n", "        self.reading = FULL\n"
    ),
    "reads on after a frame that is too large": stream("        self.reading = ENDING\n", ""),
    "ends the connection for every bad frame": stream('if problem.code != "TOO_LARGE":', "if False:"),
    "takes items at its end": stream("if self.reading is ENDING or self.reading is GONE:", "if self.reading is GONE:"),
    "answers frames at its end": stream("if self.reading in (ENDING, GONE):", "if False:"),
    "stores what a lost connection was joining": stream(
        "        line.timer_at = 0.0\n        if self.reading is GONE:\n",
        "        line.timer_at = 0.0\n        if False:\n",
    ),
    "stores what waits behind the last item of a lost connection": stream(
        "        if self.reading is GONE:\n            return actions\n        line, answer", "        line, answer"
    ),
}


def test_the_tests_pass_without_a_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = mutated_tests(monkeypatch, PRODUCT, TESTS, None)
    assert sum(1 for each in tests for _ in runs_of(each)) > 40
    assert first_failure(tests) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_the_tests_notice_a_mutant_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_failure(mutated_tests(monkeypatch, PRODUCT, TESTS, MUTANTS[name])) is not None
