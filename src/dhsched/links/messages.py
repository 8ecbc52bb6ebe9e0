"""Every message that a Worker exchanges with Dispatch and with an Infer-Controller.

Both links are WebSockets whose binary frames are msgpack. A frame is a list of messages: whatever was said to one peer
in one tick of the event loop travels together, which halves the cost of an item (docs/decisions). A message is an
array that starts with its name. Fields are only ever added at the end, with a default.

    Worker    -> Dispatch   register | resume, then report, depart, drain, exit
    Dispatch  -> Worker     registered, reported, gone, wake, departed, goodbye, problem
    Worker    -> Infer      hello, then open, pull, ack, leave
    Infer     -> Worker     welcome, opened, pulling, items, stale, ended, goodbye, problem

No message of a Worker names a Worker: who speaks is what its token says (tokens.py). Sizes are bounded here, and what
an id may contain is checked where it is used; a frame that does not fit ends its connection with a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec

from dhsched.errors import BadValue
from dhsched.types import BUSY_MAX, MARK_BYTES, NUMBER_MAX, Mode, SlotState

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""The limit of a frame on the receiving side; a sender starts a new one at a quarter of it."""
FRAME_BYTES_FULL = FRAME_BYTES_MAX // 4
MESSAGES_MAX = 16_384  # In one frame; a frame with more ends its connection.
MESSAGES_FULL = MESSAGES_MAX // 4  # A sender starts a new frame.
TURN_MESSAGES = 256  # Of one frame; then everybody else has a turn before the next of them are heard.
PUSH_FRAME_BYTES_MAX = 1024 * 1024  # Of one frame of a push stream, which is JSON; a longer one ends its connection.
PUSHES_MAX = 4_096  # Items in it, each object of a configuration counted as one; more end the connection.
HEARTBEAT_S = 2.0  # A silent peer is asked this often whether it is there: how a half-open connection is found.
SILENCE_MAX_S = 1.0  # A report that is not answered for this long: the Worker tries another replica.
REPORT_S = 1.0

Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=64)]
LiveName = Annotated[str, msgspec.Meta(max_length=129)]
Tag = Annotated[str, msgspec.Meta(max_length=146)]
Tags = Annotated[list[Tag], msgspec.Meta(max_length=BUSY_MAX)]
Token = Annotated[str, msgspec.Meta(max_length=2_048)]
Text = Annotated[str, msgspec.Meta(max_length=1_024)]
Url = Annotated[str, msgspec.Meta(max_length=512)]
Urls = Annotated[list[Url], msgspec.Meta(max_length=4_096)]
Blob = Annotated[bytes, msgspec.Meta(max_length=131_200)]
"""An item, a configuration or metadata; an interrupt may carry a configuration in front of its own payload."""
Mark = Annotated[bytes, msgspec.Meta(max_length=MARK_BYTES)]
Saved = Annotated[bytes, msgspec.Meta(max_length=65_536)]


class Message(msgspec.Struct, array_like=True, gc=False, tag=str.lower):
    """One message. Its tag is its class's name in small letters."""


# -- Worker -> Dispatch


class Register(Message):
    """A boot asks for its WorkerID. `boot` is its secret and makes the request idempotent."""

    name: Name
    boot: Name
    pool: Name
    capacity: Number
    labels: Text = ""
    replaces: Text = ""


class Resume(Message):
    """A boot that has its WorkerID comes back, to this replica or to another one."""

    token: Token


class Report(Message):
    """The sign of life. `term` and `rev` are of the slot table it has, `busy` the slots that need time.

    `prepared` are the reserved slots whose runtime is built and waits for the commit. Every report names all of them,
    up to BUSY_MAX: whichever replica hears it can go on with their moves.
    """

    term: Number
    rev: Number
    busy: Tags = []
    prepared: Tags = []


class Depart(Message):
    """This slot has no runtime here, and in this boot never will have one again.

    `reason` says how its runtime ended, where that was not asked of it (types.clean_reason).
    """

    live: LiveName
    number: Number
    reason: Text = ""


class Drain(Message):
    """Move my lives elsewhere: I want to exit, and shall in `deadline_s` from now at the latest, if that is not 0."""

    deadline_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0


class Exit(Message):
    """Every runtime is gone and so am I."""


FromWorker = Register | Resume | Report | Depart | Drain | Exit


# -- Dispatch -> Worker


class Registered(Message):
    """The WorkerID and the token that proves it."""

    worker: Text
    token: Token
    mode: Mode
    controllers: Urls


class Reported(Message):
    """The report counted. `table` is there when the copy is old, `controllers` and `token` when they changed."""

    beat: Number
    term: Number
    rev: Number
    mode: Mode
    table: dict[Tag, SlotState] | None = None
    controllers: Urls | None = None
    token: Token = ""


class Gone(Message):
    """This boot is over: stop every runtime, then register anew."""


class Wake(Message):
    """Something changed: report now."""


class Departed(Message):
    """The store has taken the Worker's word."""

    live: LiveName
    number: Number


class Goodbye(Message):
    """This process is stopping: go to another one."""


class Problem(Message):
    """What was asked could not be done. With a live it is about that live, else about the link."""

    code: Name
    detail: str
    live: LiveName = ""
    epoch: Number = 0


FromDispatch = Registered | Reported | Gone | Wake | Departed | Goodbye | Problem


# -- Worker -> Infer


class Hello(Message):
    """The first message: who this is."""

    token: Token


class Open(Message):
    """What is this live made of? Claims nothing: a runtime is built before it asks for input."""

    live: LiveName
    epoch: Number


class Pull(Message):
    """Claim the generation, or come back to it; input goes on after `after`.

    That is the last item that this runtime has, with its mark, or 0 and none.
    """

    live: LiveName
    epoch: Number
    after: Number
    mark: Mark = b""


class Ack(Message):
    """Everything up to item n, whose mark is `mark`, is consumed; `saved` is the runtime's state, where it changed."""

    live: LiveName
    epoch: Number
    n: Number
    saved: Saved | None = None
    mark: Mark = b""


class Leave(Message):
    """The runtime is gone: forget the pull."""

    live: LiveName
    epoch: Number


PullSays = Hello | Open | Pull | Ack | Leave


# -- Infer -> Worker


class Welcome(Message):
    """The token was good; this is the controller's id."""

    controller: Name


class Opened(Message):
    """What the live is made of, and what its last runtime remembered."""

    live: LiveName
    epoch: Number
    digital_id: Name
    room: Name
    metadata: Blob
    config: Blob
    saved: Saved


class Pulling(Message):
    """The pull is the latest one of its generation. `config` and `saved` are those of this moment.

    Where there is a room: its URL, and the token with which this generation publishes there.
    """

    live: LiveName
    epoch: Number
    pull_no: Number
    after: Number
    config: Blob
    saved: Saved
    room_url: Url = ""
    publish_token: Token = ""


class Items(Message):
    """Released input: items `first`, `first` + 1, ... as they are stored (ownership/items.py)."""

    live: LiveName
    epoch: Number
    pull_no: Number
    first: Number
    items: Annotated[list[Blob], msgspec.Meta(max_length=1_000)]  # As many as the largest credit.


class Stale(Message):
    """The live is elsewhere now: stop its runtime."""

    live: LiveName
    epoch: Number


class Ended(Message):
    """The live has ended: stop its runtime."""

    live: LiveName
    epoch: Number


InferSays = Welcome | Opened | Pulling | Items | Stale | Ended | Goodbye | Problem

T = TypeVar("T")
Frame = Annotated[list[T], msgspec.Meta(max_length=MESSAGES_MAX)]

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode

_from_worker = msgspec.msgpack.Decoder(Frame[FromWorker])
_from_dispatch = msgspec.msgpack.Decoder(Frame[FromDispatch])
_pull_says = msgspec.msgpack.Decoder(Frame[PullSays])
_infer_says = msgspec.msgpack.Decoder(Frame[InferSays])


def in_turns(messages: Sequence[T]) -> list[Sequence[T]]:
    """The messages of one frame by turns: between two of them the event loop must serve everybody else."""
    return [messages[first : first + TURN_MESSAGES] for first in range(0, len(messages), TURN_MESSAGES)]


def read_from_worker(frame: bytes) -> list[FromWorker]:
    return _read(_from_worker, frame)


def read_from_dispatch(frame: bytes) -> list[FromDispatch]:
    return _read(_from_dispatch, frame)


def read_pull_says(frame: bytes) -> list[PullSays]:
    return _read(_pull_says, frame)


def read_infer_says(frame: bytes) -> list[InferSays]:
    return _read(_infer_says, frame)


def _read(decoder: msgspec.msgpack.Decoder[list[T]], frame: bytes) -> list[T]:
    if len(frame) > FRAME_BYTES_MAX:
        raise BadValue(f"a frame has {len(frame)} bytes, at most {FRAME_BYTES_MAX} are allowed")
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"a frame cannot be read: {error}") from None
