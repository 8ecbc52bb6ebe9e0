"""The process of one live, with `process_per_live`: `python -m dhsched.worker.child_main my_avatar:avatar`.

It runs the real session; child_session.py is the other end of its pipes. What the runtime prints goes to standard
error: standard output is for our messages alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Any

import msgspec

from dhsched.links.messages import Source
from dhsched.ownership.journal import Change
from dhsched.types import Generation
from dhsched.web.logs import configure_logging
from dhsched.web.running import run_loop
from dhsched.worker.child_session import packed, packed_entries, unpacked, unpacked_entries
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.reasons import reason_of
from dhsched.worker.runtimes import Runtime, load_function, load_runtime
from dhsched.worker.session import Emission, Item, Publish, Session
from dhsched.worker.setup import Setup, set_up
from dhsched.worker.values import raw_state, state_of

LINE_BYTES_MAX = 4 * 2**20  # A longer message of the Worker ends the process; an item is far shorter.


class Pipe:
    """The child's end of the connection: passes the requests of its session on to the Worker."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def claim(self, session: Session) -> None:
        self.say(claim={}, **({"journal": {}} if SessionInbox(session).wants_journal else {}))

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        brought: dict[str, Any] = {} if saved is None else packed(state_of(saved))
        if journal is not None:
            entries = packed_entries(journal.entries)
            brought["journal_change"] = {"drop": journal.drop, "first": journal.first, "entries": entries}
        self.say(ack=n, **brought)

    def emit(self, session: Session, emission: Emission) -> None:
        """Hand the message to the Worker, which keeps it until it is stored, and reads no further while many wait."""
        self.say(emit={"name": emission.name, "data": msgspec.json.decode(emission.data)})
        SessionInbox(session).stored(emission.n)

    def log(self, session: Session, source: Source, text: str | bytes) -> None:
        """Do nothing: what is logged goes to standard error, and the Worker adds that to the live's log."""

    def say(self, **what: Any) -> None:
        line = memoryview(msgspec.json.encode(what) + b"\n")
        while line:
            line = line[os.write(self._fd, line) :]


class Child:
    """One session, driven by the Worker's messages."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._inbox: SessionInbox | None = None
        self.opened: asyncio.Future[Session] = asyncio.get_running_loop().create_future()

    async def read(self) -> None:
        """Act on the Worker's messages until they end; the end stops the runtime too."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            for what, fields in msgspec.json.decode(line, type=dict[str, Any]).items():
                self._hear(what, fields)
        if self._inbox is not None:
            self._inbox.close()

    def _hear(self, what: str, fields: dict[str, Any]) -> None:
        if what == "open":
            self._open(fields)
            return
        inbox = self._inbox
        assert inbox is not None
        session = inbox.session
        match what:
            case "claimed":
                self._publish(session, fields)
                inbox.begins_after(fields["after"], msgspec.json.encode(fields["config"]), raw_state(unpacked(fields)))
            case "publish":
                self._publish(session, fields)
            case "input":
                self._input(inbox, fields)
            case "journal":
                inbox.journal_read(fields["last"], unpacked_entries(fields["entries"]))
            case "interrupt":
                inbox.interrupt_early(fields["seq"])
            case "close":
                inbox.close()

    def _publish(self, session: Session, fields: dict[str, Any]) -> None:
        where = fields["publish"]
        session.publish = Publish(**where) if where else None

    def _open(self, fields: dict[str, Any]) -> None:
        session = Session(
            fields["live"],
            Generation(fields["worker"], fields["epoch"]),
            self._pipe,
            may_claim=True,
            on_extend=self._extended,
            on_late=lambda seconds: self._pipe.say(late=seconds),
        )
        session.digital_id, session.room, session.device = fields["digital_id"], fields["room"], fields["device"]
        session.metadata, session.config = fields["metadata"], fields["config"]
        self._inbox = SessionInbox(session)
        self._inbox.given_state(raw_state(unpacked(fields)))
        self.opened.set_result(session)

    def _extended(self) -> None:
        assert self._inbox is not None
        self._pipe.say(extend=self._inbox.busy_until - asyncio.get_running_loop().time())

    def _input(self, inbox: SessionInbox, fields: dict[str, Any]) -> None:
        session, config = inbox.session, fields.get("config")
        raw = None if config is None else msgspec.json.encode(config)
        text, traceparent = fields["text"].encode(), fields.get("traceparent", "")
        item = Item(fields["seq"], fields["kind"], text, fields["boundary"], raw, traceparent=traceparent)
        # An interrupt was announced before it came in its turn.
        callback, session.on_interrupt = session.on_interrupt, None
        accepted = inbox.accept(item)
        session.on_interrupt = callback
        if not accepted:
            # The store has begun the input elsewhere since the claim was announced.
            raise ValueError(f"item {item.seq} does not follow item {inbox.accepted[0]}")


async def run_child(runtime: Runtime, setup: Setup | None, pipe: Pipe) -> None:
    child = Child(pipe)
    reading = asyncio.create_task(child.read())
    session_opened = asyncio.ensure_future(child.opened)
    try:
        await asyncio.wait((reading, session_opened), return_when=asyncio.FIRST_COMPLETED)
        if not session_opened.done():
            return
        session = session_opened.result()
        session.shared = await set_up(setup)
        running = asyncio.ensure_future(runtime(session))
        await asyncio.wait((reading, running), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
        await running
    except Exception as error:
        pipe.say(failed=reason_of(error))
        raise
    finally:
        reading.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runtime")
    parser.add_argument("--setup", default="")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-json", action="store_true")
    given = parser.parse_args()
    pipe = Pipe(os.dup(1))
    os.dup2(2, 1)
    configure_logging(level=given.log_level, json=given.log_json)
    setup = load_function("setup", given.setup) if given.setup else None
    run_loop(run_child(load_runtime(given.runtime), setup, pipe), runs_code_of_others=True)


if __name__ == "__main__":
    main()
