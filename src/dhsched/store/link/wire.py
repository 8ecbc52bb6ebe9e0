"""One RESP3 connection: sends batches, matches replies in order, passes pushes on.

Theory of operation. The server answers commands in the order in which they came, so `sent` is a queue and the next
reply belongs to its head, whether its caller still waits or not. Three kinds of message arrive: a reply, an error
reply, and a push, which belongs to no command. There is one exception, and it is the server's: SSUBSCRIBE and
SUNSUBSCRIBE have no reply on success, their confirmation is a push. They are therefore the only calls that a push can
take from the queue, and only when the head is that very call.

A Wire lasts as long as its connection. It knows nothing of deadlines, retries or reconnecting: that is `link.py`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import hiredis

from dhsched.errors import StoreRefused, StoreUnavailable

log = logging.getLogger(__name__)

Arg = bytes | str | int | float
OnMessage = Callable[[bytes, bytes], None]
"""A callback that gets a channel and one of its messages."""

# Packs a command as it is sent. The stub of hiredis knows only tuples of one element.
pack = cast(Callable[[tuple[Arg, ...]], bytes], hiredis.pack_command)

# RESP3 has a false, so "not enough data yet" needs a value that no reply can have.
NOTHING = object()
NO_TAIL = -len(b"$0\r\n\r\n")  # Cuts an empty last argument off: the wire puts its own there.
GARBAGE_SHOWN_BYTES = 40
REPLY_SHOWN_CHARS = 200

ADVICE = {
    "ASK": "its slot is being moved, try again",
    "BUSY": "a script runs too long on it, see SCRIPT KILL",
    "HOME": "the store was restarted or failed over, try again",
    "CLUSTERDOWN": "bring the cluster's missing slots back",
    "DENIED": "set a password on it or turn its protected mode off",
    "LOADING": "wait until it has read its data",
    "MASTERDOWN": "give the address of the primary",
    "MISCONF": "it cannot write its data to disk, see its log",
    "NOAUTH": "give a password in the URL, as in redis://:PASSWORD@host",
    "NOPERM": "allow this command and the key prefix dh: in the ACL of this user",
    "NOREPLICAS": "bring its replicas back",
    "OOM": "raise its maxmemory: nothing is evicted, by intent",
    "READONLY": "it is a read-only replica, give the address of the primary",
    "TRYAGAIN": "its slot is being moved, try again",
    "WRONGPASS": "check user and password in the URL",
}


@dataclass(slots=True, eq=False)
class Call:
    """One command and the future of its reply. A `script` that the server has forgotten is loaded and sent again, and
    the wire's tail is its last argument.

    `read`, if given, converts the reply to the future's result.
    """

    future: asyncio.Future[Any]
    packed: bytes
    name: Arg
    deadline: float
    script: bool
    read: Callable[[Any], Any] | None = None
    tries: int = 0
    refusal: str = ""  # Why the call did not run when it was last sent, if it is to be sent again.

    def __str__(self) -> str:
        return self.name.decode(errors="replace") if isinstance(self.name, bytes) else str(self.name)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def answer(self, reply: Any) -> None:
        """Pass a reply on to the caller, which must have no result yet."""
        try:
            self.future.set_result(reply if self.read is None else self.read(reply))
        except Exception as error:  # `read` does not know this reply: only its caller is concerned.
            self.future.set_exception(error)


class AtOnce(Call):
    """A call that writes nothing in the data, such as SCRIPT LOAD: its reply is passed on at once (`settling.py`)."""

    __slots__ = ()


class Subscribing(Call):
    """SSUBSCRIBE or SUNSUBSCRIBE: confirmed by the push `kind channel`, not by a reply."""

    __slots__ = ("channel", "kind")

    def __init__(self, future: asyncio.Future[Any], kind: str, channel: bytes, deadline: float) -> None:
        super().__init__(future, pack((kind, channel)), kind, deadline, script=False)
        self.kind = kind.lower().encode()
        self.channel = channel


def refused(store: str, reply: str) -> StoreRefused:
    """Return the server's error reply as a StoreRefused with a remedy."""
    code = reply.split(" ", 1)[0]
    shown = " ".join(reply.split())[:REPLY_SHOWN_CHARS].rstrip(".")
    return StoreRefused(f"store {store} refused: {shown}; {ADVICE.get(code, 'see its log')}", code=code, reply=reply)


def _ignore(*_: object) -> None:
    """Do nothing, where nobody has asked to be called."""


class Wire(asyncio.Protocol):
    """One connection; see the module. Its owner sets `channels` and the `on_...` attributes."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.sent: deque[Call] = deque()
        self.gone = False
        self.paused = False
        self.tail = b""  # The last argument of every script on this connection, as it is sent; empty if there is none.
        self.leaving: str | None = None
        self.garbled = False
        self.late_replies = 0
        self.on_refusal: Callable[[Call, StoreRefused], None] = lambda call, refusal: call.fail(refusal)
        self.on_reply: Callable[[Call, Any], None] | None = None  # Gets every reply with its call, if it is set.
        self.channels: Mapping[bytes, OnMessage] = {}  # The callback of each channel.
        self.on_unsubscribed: Callable[[], None] = _ignore
        self.on_writable: Callable[[], None] = _ignore
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._reason: str | None = None
        self._reader = hiredis.Reader(replyError=partial(refused, store), notEnoughData=NOTHING)

    # -- out ----------------------------------------------------------------------------------------------------

    def send(self, calls: Sequence[Call]) -> int:
        """Write all of `calls` at once and expect their replies in this order. Return the number of bytes."""
        if self.tail:
            tails = (b"", self.tail)
            batch = b"".join([part for call in calls for part in (call.packed, tails[call.script])])
        else:
            batch = b"".join([call.packed for call in calls])
        self.sent.extend(calls)
        assert self._transport is not None
        self._transport.write(batch)
        return len(batch)

    def leave(self, reason: str) -> None:
        """Close once everything sent is answered: a late answer is worth more than `unknown`."""
        self.leaving = self.leaving or reason
        if not self.sent:
            self.drop(reason)

    def drop(self, reason: str) -> None:
        """Close now. Calls that were sent and not answered fail as unknown, in `connection_lost`."""
        self.gone = True
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    # -- in -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.gone:
            return
        sent, gets, on_reply = self.sent, self._reader.gets, self.on_reply
        try:
            self._reader.feed(data)
            while (reply := gets()) is not NOTHING:
                kind = type(reply)
                if kind is hiredis.PushNotification and reply[0] == b"smessage":
                    try:
                        self.channels.get(reply[1], _ignore)(reply[1], reply[2])
                    except Exception:
                        # The connection is shared: a failing subscriber must not cost the other callers their replies.
                        log.exception("the subscriber of channel %r failed", reply[1])
                elif kind is hiredis.PushNotification:
                    self._subscribed(reply)
                elif not sent:
                    self.drop("it sent a reply without a call")
                    return
                elif kind is StoreRefused:
                    self.on_refusal(sent.popleft(), reply)
                elif on_reply is not None:
                    on_reply(sent.popleft(), reply)
                else:
                    call = sent.popleft()  # As Call.answer does it, without the cost of a call.
                    if call.future.done():
                        self.late_replies += 1
                        continue
                    try:
                        call.future.set_result(reply if call.read is None else call.read(reply))
                    except Exception as error:  # `read` does not know this reply: only its caller is concerned.
                        call.future.set_exception(error)
        except hiredis.ProtocolError:
            self.garbled = True
            self.drop(f"it does not speak the protocol of Valkey and Redis: {data[:GARBAGE_SHOWN_BYTES]!r}")
        if self.leaving is not None and not sent:
            self.drop(self.leaving)

    def _subscribed(self, push: list[Any]) -> None:
        kind = push[0]
        if kind in (b"ssubscribe", b"sunsubscribe"):
            head = self.sent[0] if self.sent else None
            if isinstance(head, Subscribing) and head.kind == kind and head.channel == push[1]:
                self.sent.popleft()
                if not head.future.done():
                    head.future.set_result(None)
            elif kind == b"sunsubscribe":
                # Not requested: the channel's slot has moved to another node, and later messages go there.
                self.on_unsubscribed()

    # -- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self._reason = self._reason or (str(exc) if exc else "the server closed it")
        for call in self.sent:
            call.fail(
                StoreUnavailable(
                    f"lost the connection to store {self.store} with {call} in flight ({self._reason}): it may "
                    "have run, repeat it with the same operation id",
                    unknown=True,
                )
            )
        self.sent.clear()
        if not self.lost.done():
            self.lost.set_result(self._reason)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.on_writable()
