"""Log lines of a Worker's runtimes: when they are sent, what is dropped, and that this is said."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
import structlog

from dhsched.links.messages import LOG_LINES_MAX, LogLine
from dhsched.types import LINE_BYTES_MAX
from dhsched.web import logs
from dhsched.worker import log_lines
from dhsched.worker.log_lines import WAITING_MAX, Key, LogLines, Splitter, lines_of
from tests.harness.fleet import until

A: Key = ("t/a", 1)
B: Key = ("t/b", 7)


class Sent:
    """A controller that takes lines, or does not."""

    def __init__(self) -> None:
        self.messages: list[tuple[Key, list[LogLine]]] = []
        self.connected = True

    def __call__(self, key: Key, lines: list[LogLine]) -> bool:
        if self.connected:
            self.messages.append((key, lines))
        return self.connected

    @property
    def lines(self) -> list[tuple[Key, str, bytes]]:
        return [(key, line.source, line.text) for key, lines in self.messages for line in lines]


async def ticks() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_first_line_is_sent_in_its_tick_and_those_that_follow_go_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_lines, "FLUSH_S", 1_000.0)
    sent = Sent()
    lines = LogLines(sent, 100)
    lines.add(A, "info", "one\n\ntwo")
    lines.add(B, "stderr", b"three")
    await ticks()
    assert sent.messages == [
        (A, [LogLine("info", b"one"), LogLine("info", b"two")]),
        (B, [LogLine("stderr", b"three")]),
    ]
    lines.add(A, "info", "four")
    lines.add(A, "info", "five")
    await ticks()
    assert len(sent.messages) == 2, "they wait for FLUSH_S"
    lines.leave(A)
    assert sent.messages[2:] == [(A, [LogLine("info", b"four"), LogLine("info", b"five")])]
    lines.close()


async def test_lines_over_the_rate_are_dropped_and_counted_in_a_line() -> None:
    sent = Sent()
    lines = LogLines(sent, 2)
    for n in range(5):
        lines.add(A, "info", f"line {n}")
    lines.leave(A)
    assert sent.lines == [(A, "info", b"line 0"), (A, "info", b"line 1"), (A, "dropped", b"3 lines")]
    lines.close()


async def test_what_was_dropped_is_said_as_soon_as_the_rate_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "UNSENT_S", 0.01)
    sent = Sent()
    lines = LogLines(sent, 20)
    for n in range(25):
        lines.add(A, "info", f"line {n}")
    await until(lambda: len(sent.lines) == 21, "the line that says what was dropped")
    assert sent.lines[-1][1] == "dropped"


async def test_lines_wait_for_a_controller_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "UNSENT_S", 0.01)
    sent = Sent()
    sent.connected = False
    lines = LogLines(sent, 100_000)
    for n in range(WAITING_MAX + 3):
        lines.add(A, "info", f"line {n}")
    await ticks()
    sent.connected = True
    await until(lambda: len(sent.lines) > WAITING_MAX, "the lines that waited")
    assert sent.lines[-1] == (A, "dropped", b"3 lines")
    assert max(len(each) for _, each in sent.messages) == LOG_LINES_MAX


async def test_a_rate_of_zero_sends_nothing_and_starts_no_timer() -> None:
    sent = Sent()
    lines = LogLines(sent, 0)
    lines.add(A, "info", "one")
    await ticks()
    lines.leave(A)
    assert sent.messages == []


def test_a_long_line_is_cut_and_an_endless_text_has_a_limit() -> None:
    [cut] = lines_of("x" * 5_000)
    assert len(cut) == LINE_BYTES_MAX and cut.endswith(b" [...]")
    longest = "x" * LINE_BYTES_MAX
    assert [*lines_of(longest)] == [longest.encode()]
    assert [*lines_of("a\r\n \nb")] == [b"a", b"b"]


async def test_of_one_text_many_lines_are_sent_and_the_rest_is_counted() -> None:
    sent = Sent()
    lines = LogLines(sent, 1_000)
    lines.add(A, "error", "\n".join(map(str, range(100))))
    lines.leave(A)
    assert [text for _, _, text in sent.lines][-2:] == [b"63", b"36 lines"]
    lines.close()


def test_lines_are_found_in_pieces() -> None:
    splitter = Splitter()
    assert [*splitter.feed(b"on")] == []
    assert [*splitter.feed(b"e\ntwo\nthr")] == [b"one", b"two"]
    assert splitter.end() == b"thr"
    assert [len(each) for each in splitter.feed(b"x" * 10_000)] == [10_003], "a line without an end does not grow on"
    assert splitter.end() == b""


def test_what_a_task_logs_is_passed_on_with_its_traceback() -> None:
    kept: list[tuple[str, str]] = []
    before = structlog.get_config()
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    root.handlers.clear()
    token = logs.KEEP.set(lambda level, text: kept.append((level, text)))
    try:
        logs.configure_logging(level="info")
        log = structlog.get_logger("mine")
        log.info("loading", model="anna", live="t/a")
        log.debug("too fine")
        with logs.not_kept():
            log.info("only here")
        logging.getLogger("library").warning("of %s", "the library")
        try:
            raise ValueError("as told")
        except ValueError:
            log.exception("failed")
        thread = threading.Thread(target=log.info, args=("of another thread",))
        thread.start()
        thread.join()
    finally:
        logs.KEEP.reset(token)
        structlog.configure(**before)
        root.handlers[:] = handlers
        root.setLevel(level)
    assert kept[:2] == [("info", "loading model=anna"), ("warning", "of the library")]
    assert kept[2][0] == "error" and kept[2][1].startswith("failed\nTraceback")
    assert kept[2][1].endswith("ValueError: as told")
    assert len(kept) == 3, "a thread of its own has no live"
