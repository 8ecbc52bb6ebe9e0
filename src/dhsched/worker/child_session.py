"""`process_per_live`: each live's Python runtime in a process of its own, which child_main.py runs.

Beyond what an `--exec` child is sent (exec.py), this child claims when its runtime asks for input (`claim`), is told
when the claim is granted and where to publish (`claimed`; `publish` when that has changed), gets and saves states of
bytes (`state_bytes`), has a copy of the journal whose changes come with its acks (`journal_change`), and says why its
runtime failed (`failed`). A crash of such a process, by an exception, a signal or the kernel's memory killer, is a
crash of its live and of no other, and a call that blocks stops nobody else.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from dhsched.errors import BadSetting, BadValue, ChildFailed
from dhsched.ownership.journal import Change
from dhsched.tasks import cancel, first
from dhsched.worker.exec import ChildSession
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.journal import Journal
from dhsched.worker.session import Item, Publish

MODULE = "dhsched.worker.child_main"


def command_of(runtime: Callable[..., Any], setup: Callable[..., Any] | None, *options: str) -> list[str]:
    """Return the command that runs this runtime for one live."""
    more = ("--setup", name_of(setup, "setup")) if setup is not None else ()
    return [sys.executable, "-m", MODULE, name_of(runtime, "runtime"), *more, *options]


def name_of(function: Callable[..., Any], what: str) -> str:
    """Return `package.module:function`; raise BadSetting if another process could not import the function so."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if module == "__main__":
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = spec.name if spec is not None else ""
    if not module or not name or "." in name or "<" in name:
        raise BadSetting(
            f"process_per_live needs a {what} that another process can import, and {name or function!r} is not such: "
            "define it in a module of its own, outside of functions and classes"
        )
    return f"{module}:{name}"


def packed(state: Any) -> dict[str, Any]:
    """Return a state as fields of a message: JSON has no bytes."""
    if isinstance(state, bytes):
        return {"state_bytes": base64.b64encode(state).decode()}
    return {"state": state}


def unpacked(fields: dict[str, Any]) -> Any:
    return base64.b64decode(fields["state_bytes"]) if "state_bytes" in fields else fields["state"]


def packed_entries(entries: Iterable[bytes]) -> list[str]:
    """Return journal entries as they are stored, for a message."""
    return [base64.b64encode(entry).decode() for entry in entries]


def unpacked_entries(entries: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(map(base64.b64decode, entries))


def shown_publish(publish: Publish | None) -> dict[str, str] | None:
    return {"url": publish.url, "token": publish.token} if publish else None


class PythonChildSession(ChildSession):
    """One live and its Python process."""

    line_bytes_max: ClassVar[int] = 4 * 2**20  # A journal that is replaced as a whole comes in one message.

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._claim_asked = asyncio.Event()
        self._announced = False
        self._published: Publish | None = None  # As the child knows it.
        self._failed = ""

    def _opening(self) -> dict[str, Any]:
        fields = super()._opening()
        del fields["state"]
        return {**fields, **packed(self._session.state)}

    async def _feed(self) -> None:
        assert self._child.stdin is not None
        await first(self._claim_asked, self._session.stopping)
        if self._session.stopping.is_set():
            return
        announcing = asyncio.create_task(self._announce_when_claimed())
        try:
            async for item in self._session.inputs(auto_ack=False):
                self._announce()
                self._hand(item)
                await self._child.stdin.drain()
        finally:
            await cancel(announcing)

    async def _announce_when_claimed(self) -> None:
        await self._session.claimed.wait()
        self._announce()

    def _announce(self) -> None:
        """Send the child, once and before its first item, the start of its input and its state."""
        if self._announced:
            return
        self._announced = True
        session = self._session
        self._published = session.publish
        fields = {"after": SessionInbox(session).acked, "config": session.config, **packed(session.state)}
        self._tell("claimed", {**fields, "publish": shown_publish(session.publish)})

    def _hand(self, item: Item) -> None:
        """Send an item. If a later pull has brought another publish token, send the token first."""
        if self._session.publish != self._published:
            self._published = self._session.publish
            self._tell("publish", {"publish": shown_publish(self._published)})
        super()._hand(item)

    def _interrupted(self) -> None:
        self._announce()
        super()._interrupted()

    def _journal_fields(self, journal: Journal) -> dict[str, Any]:
        self._announce()
        last, entries = journal.copied
        return {"last": last, "entries": packed_entries(entries)}

    def _write_journal(self, said: dict[str, Any]) -> None:
        change = said.get("journal_change")
        if change is None:
            return
        assert self._journal is not None
        try:
            self._journal.apply(Change(change["drop"], change["first"], unpacked_entries(change["entries"])))
        except BadValue as error:
            raise ChildFailed(f"{self._session.live} wrote what its journal cannot take: {error}") from None

    def _hear(self, said: dict[str, Any]) -> None:
        if "claim" in said:
            self._claim_asked.set()
        if "failed" in said:
            self._failed = str(said["failed"])
        if "state_bytes" in said:
            self._session.state = unpacked(said)
        super()._hear(said)

    def _save(self, state: Any) -> None:
        """Save the state as the runtime has set it: its next generation gets a text as a text."""
        self._session.state = state

    def _failure(self) -> ChildFailed:
        return ChildFailed(self._failed) if self._failed else super()._failure()
