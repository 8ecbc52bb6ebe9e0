"""Every message that a Worker exchanges with Dispatch and with an Infer-Controller.

Both links are WebSockets whose binary frames are msgpack. A frame is a list of messages: the messages to one peer in
one tick of the event loop are sent together, which halves the cost of an item (docs/decisions). A message is an array
that starts with its name. Fields are only ever added at the end, with a default.

    Worker    -> Dispatch   register | resume, then report, depart, devicelist, drain, exit
    Dispatch  -> Worker     registered, reported, gone, wake, departed, goodbye, problem
    Worker    -> Infer      hello, then open, pull, ack, emit, log, leave
    Infer     -> Worker     welcome, opened, pulling, items, emitted, stale, ended, goodbye, problem

No message of a Worker names its sender: the token does (tokens.py). Sizes are bounded here, and the characters of an id
are checked where the id is used; a frame that does not fit ends its connection with a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal, TypeVar

import msgspec

from dhsched.errors import BadValue
from dhsched.types import BUSY_MAX, EMIT_BYTES_MAX, LINE_BYTES_MAX, MARK_BYTES, NUMBER_MAX, Mode, SlotState

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""A longer frame ends its connection at the receiver; a sender starts a new frame at a quarter of this."""
FRAME_BYTES_FULL = FRAME_BYTES_MAX // 4
MESSAGES_MAX = 256  # A frame with more messages ends its connection; a sender starts a new frame at this many.
TURN_MESSAGES = 64  # After this many messages of one frame, other connections are served before the next ones.
PUSH_FRAME_BYTES_MAX = 1024 * 1024  # A longer frame of a push stream, which is JSON, ends its connection.
PUSHES_MAX = 64  # Items in such a frame; more end the connection. So one frame is no more than a turn.
HEARTBEAT_S = 2.0  # A silent peer is pinged this often, to find half-open connections.
SILENCE_MAX_S = 1.0  # A Worker whose report is not answered for this long tries another replica.
REPEATS_MAX = 4
"""Messages of one kind in a Worker's frame, except Depart: a Worker repeats none while the last is not answered. More
end the link, because each is a step of the store."""
REPORT_S = 1.0  # A Worker reports at least this often.
DEVICES_MAX = 64  # Devices of one Worker; a Worker with more does not start.
LOG_LINES_MAX = 64  # Lines in one message; a Worker sends more in several.

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
Data = Annotated[bytes, msgspec.Meta(max_length=EMIT_BYTES_MAX)]
Saved = Annotated[bytes, msgspec.Meta(max_length=65_536)]
Entries = Annotated[list[Saved], msgspec.Meta(max_length=1_024)]
Source = Literal["debug", "info", "warning", "error", "critical", "stdout", "stderr", "dropped"]


class Message(msgspec.Struct, array_like=True, gc=False, tag=str.lower):
    """One message. Its tag is its class's name in small letters."""


# -- Worker -> Dispatch


class Register(Message):
    """Request a WorkerID for a boot. `boot` is the boot's secret and makes the request idempotent.

    `replaces` is an earlier boot of the same name. With a machine key, an empty name, Pool or labels and a capacity of
    0 are taken from the key.
    """

    name: Name
    boot: Name
    pool: Name
    capacity: Number
    labels: Text = ""
    replaces: Text = ""


class Resume(Message):
    """Resume a boot that has its WorkerID, on a new link to any replica."""

    token: Token


class Report(Message):
    """Report that the Worker is alive. `term`, `rev` and `home` are of its slot table, `busy` has the slots that need
    time.

    `prepared` has the reserved slots whose runtime is built and waits for the commit. Every report names all of them,
    up to BUSY_MAX, so that the replica which receives it can continue their moves. With `partly` the Worker can apply
    what has changed to the table that it has. `lag_ms` is how late its event loop was, at worst within a minute.
    """

    term: Number
    rev: Number
    busy: Tags = []
    prepared: Tags = []
    home: Name = ""
    partly: bool = False
    lag_ms: Number = 0


class Depart(Message):
    """Report that this slot has no runtime, and will never have one again in this boot.

    `reason` says how the runtime ended, if it was not asked to end (types.clean_reason).
    """

    live: LiveName
    number: Number
    reason: Text = ""


class Device(msgspec.Struct, array_like=True, gc=False):
    """A device of a Worker: the lives that have crashed on it lately, and whether there are too many to use it."""

    name: Name
    crashes: Number
    blamed: bool


class DeviceList(Message):
    """Tell which devices the sender has. A Worker whose devices were not named sends none."""

    devices: Annotated[list[Device], msgspec.Meta(max_length=DEVICES_MAX)]


class Drain(Message):
    """Request a drain of the sender, which wants to exit: within `deadline_s` at the latest, unless this is 0."""

    deadline_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0


class Exit(Message):
    """Report that every runtime is gone and the Worker exits."""


FromWorker = Register | Resume | Report | Depart | DeviceList | Drain | Exit


# -- Dispatch -> Worker


class Registered(Message):
    """The WorkerID and the token that proves it."""

    worker: Text
    token: Token
    mode: Mode
    controllers: Urls


class Reported(Message):
    """Confirm a report. `table` is set when the Worker's copy is old, `controllers` and `token` when they changed.

    With a `base` the table has only the slots that changed since this revision, without a state if they are gone.
    """

    beat: Number
    term: Number
    rev: Number
    mode: Mode
    table: dict[Tag, SlotState | None] | None = None
    controllers: Urls | None = None
    token: Token = ""
    home: Name = ""
    base: Number = 0


class Gone(Message):
    """Tell a Worker that its boot is over: it must stop every runtime, then register anew."""


class GoTo(Message):
    """Ask a draining Worker to register in this cell once it is empty."""

    cell: Name


class Wake(Message):
    """Ask the Worker to report now, because its slot table may have changed."""


class Departed(Message):
    """Confirm that the store has recorded a Depart."""

    live: LiveName
    number: Number


class Goodbye(Message):
    """Ask the peer to connect to another process, because this one is stopping."""


class Problem(Message):
    """Refuse a request. With `live` the problem is about this live, otherwise about the link."""

    code: Name
    detail: str
    live: LiveName = ""
    epoch: Number = 0


FromDispatch = Registered | Reported | GoTo | Gone | Wake | Departed | Goodbye | Problem


# -- Worker -> Infer


class Hello(Message):
    """Identify the Worker by its token; the first message of a connection. A Worker with `takes_traces` can read items
    that have a trace; any other gets the items without."""

    token: Token
    takes_traces: bool = False


class Open(Message):
    """Request what a runtime of this live is built from. This claims nothing: the runtime is built before it pulls."""

    live: LiveName
    epoch: Number


class Pull(Message):
    """Claim the generation, or resume it; input goes on after `after`.

    `after` is the last item that this runtime has, and `mark` the mark of this item; 0 and empty if it has none.
    `with_journal` asks for the live's journal. `device` is the one that the runtime has, of a Worker with several.
    """

    live: LiveName
    epoch: Number
    after: Number
    mark: Mark = b""
    with_journal: bool = False
    device: Name = ""


class JournalChange(msgspec.Struct, array_like=True, gc=False):
    """What an ack does to the live's journal: drop entries up to `drop`, then add `entries`, numbered from `first`."""

    drop: Number
    first: Number
    entries: Entries


class Ack(Message):
    """Ack everything up to item `n`, whose mark is `mark`. `saved` is the runtime's state, if it changed; `journal` has
    what it has written since its last ack on this connection."""

    live: LiveName
    epoch: Number
    n: Number
    saved: Saved | None = None
    mark: Mark = b""
    journal: JournalChange | None = None


class Emit(Message):
    """Store message `n` of the generation's runtime for the application. `told` is the last one that was confirmed.
    `item` is the traced item that the message is about, if any."""

    live: LiveName
    epoch: Number
    n: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
    name: Name
    data: Data
    told: Number = 0
    item: Number = 0


class LogLine(msgspec.Struct, array_like=True, gc=False):
    """A line of a runtime's log: its level, or the output that it was written to. A line of source `dropped` says how
    many lines were not sent."""

    source: Source
    text: Annotated[bytes, msgspec.Meta(max_length=LINE_BYTES_MAX)]


class Log(Message):
    """Keep lines that the generation's runtime has logged. Nothing is answered."""

    live: LiveName
    epoch: Number
    lines: Annotated[list[LogLine], msgspec.Meta(max_length=LOG_LINES_MAX)]


class Leave(Message):
    """End the pull, because the runtime is gone."""

    live: LiveName
    epoch: Number


PullSays = Hello | Open | Pull | Ack | Emit | Log | Leave


# -- Infer -> Worker


class Welcome(Message):
    """Confirm the token; `controller` is the controller's id."""

    controller: Name


class Opened(Message):
    """What a runtime of the live is built from, and the state that its last runtime saved."""

    live: LiveName
    epoch: Number
    digital_id: Name
    room: Name
    metadata: Blob
    config: Blob
    saved: Saved


class Pulling(Message):
    """Grant a pull, the latest of its generation. `config` and `saved` are the present ones. The journal's last entry
    has the number `journal_last`; `journal` has the entries, if the pull asked for them.

    With a room, `room_url` is its URL, and `publish_token` lets this generation publish there.
    """

    live: LiveName
    epoch: Number
    pull_no: Number
    after: Number
    config: Blob
    saved: Saved
    room_url: Url = ""
    publish_token: Token = ""
    journal_last: Number = 0
    journal: Entries | None = None


class Items(Message):
    """Released input: items `first`, `first` + 1, ... as they are stored (ownership/items.py)."""

    live: LiveName
    epoch: Number
    pull_no: Number
    first: Number
    items: Annotated[list[Blob], msgspec.Meta(max_length=1_000)]  # The largest `credit`.


class Emitted(Message):
    """Confirm that the runtime's messages up to `n` are stored. With `again`, the later ones must be sent again."""

    live: LiveName
    epoch: Number
    n: Number
    again: bool = False


class Stale(Message):
    """Tell the Worker to stop the runtime: the live has a later generation."""

    live: LiveName
    epoch: Number


class Ended(Message):
    """Tell the Worker to stop the runtime: the live has ended."""

    live: LiveName
    epoch: Number


InferSays = Welcome | Opened | Pulling | Items | Emitted | Stale | Ended | Goodbye | Problem

T = TypeVar("T")
Frame = Annotated[list[T], msgspec.Meta(max_length=MESSAGES_MAX)]

_encoder = msgspec.msgpack.Encoder()
_from_worker = msgspec.msgpack.Decoder(Frame[FromWorker])
encode = _encoder.encode


def in_turns(messages: Sequence[T]) -> list[Sequence[T]]:
    """Return the messages of one frame in turns; between two turns the caller lets the event loop serve others."""
    return [messages[first : first + TURN_MESSAGES] for first in range(0, len(messages), TURN_MESSAGES)]


def read_from_worker(frame: bytes) -> list[FromWorker]:
    """Return the messages in a frame to Dispatch; raise BadValue also for one that has a kind of message too often."""
    said = _read(_from_worker, frame)
    if len(said) > REPEATS_MAX:
        for kind, count in Counter(map(type, said)).items():
            if count > REPEATS_MAX and kind is not Depart:  # Departs are many: each is of another slot.
                name = kind.__name__.lower()
                raise BadValue(f"a frame has {count} messages {name}; send at most {REPEATS_MAX} in one frame")
    return said


def _read(decoder: msgspec.msgpack.Decoder[list[T]], frame: bytes) -> list[T]:
    if len(frame) > FRAME_BYTES_MAX:
        raise BadValue(f"a frame has {len(frame)} bytes; send at most {FRAME_BYTES_MAX}")
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"a frame cannot be read: {error}") from None


Read = Callable[[bytes], list[T]]
"""Return the messages in a frame; raise BadValue for one that is too long or cannot be read."""
read_from_dispatch: Read[FromDispatch] = partial(_read, msgspec.msgpack.Decoder(Frame[FromDispatch]))
read_pull_says: Read[PullSays] = partial(_read, msgspec.msgpack.Decoder(Frame[PullSays]))
read_infer_says: Read[InferSays] = partial(_read, msgspec.msgpack.Decoder(Frame[InferSays]))
