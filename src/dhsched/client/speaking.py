"""One answer of a language model, spoken by a live; and what of it was heard.

    turn = client.speak(live_id, tokens)
    heard = await turn                  # until all of it was heard, or an interrupt has ended it
    heard = await turn.interrupt()      # from another task: the user has begun to speak

Tokens are joined into sentences, and each is an item of a stream of the client: stored in order, exactly once. An item
that was acked was heard as a whole. Of the item that an interrupt stopped, the runtime says how much was heard
(`spoken`, docs/reference/input.md); without that, nothing of it counts. The turn follows the live's events, so it ends
in the same way if somebody else interrupts, or the live ends. If a Worker dies, its item is spoken again by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dhsched.client.models.input import Pushed
from dhsched.client.sentences import Sentences
from dhsched.client.stream import Stream
from dhsched.errors import Refused
from dhsched.tasks import cancel

if TYPE_CHECKING:
    from dhsched.client.lives import Client, Event

AHEAD_MAX = 64  # Sentences that are stored and not acked; past this no tokens are read.
INTERRUPTS_MAX = 16
"""Of more interrupts, those before the first item of the turn are forgotten, then the latest: the first one behind that
item ends the turn."""
SPOKEN_S = 3.0  # After an interrupt was acked, a runtime that emits `spoken` has this long to say how far it came.


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard of an answer: `text` is a beginning of it. `complete`: all tokens were read, and all was heard."""

    text: str
    complete: bool
    items: tuple[int, ...] = ()
    """The numbers of the items that were heard as a whole."""


Number = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(slots=True)
class _Sentence:
    text: str
    stored: asyncio.Future[Pushed]
    seq: int = 0


class _Spoken(msgspec.Struct):
    """What a runtime says of its words (`session.spoken`). A runtime may emit anything under this name."""

    seq: Number = 0
    chars: Number = 0
    interrupt: Number | None = None


class Turn:
    """One answer that is being spoken. Await it for what was heard.

    An error of the token iterator or of the stream is raised there. If the waiting is cancelled, no more tokens are
    read, and what is stored is still spoken.
    """

    def __init__(self, client: Client, live_id: str, tokens: AsyncIterable[str]) -> None:
        self.live_id = live_id
        self._client = client
        self._tokens = tokens
        self._sentences: list[_Sentence] = []
        self._read_all = False
        self._stopping = False  # `interrupt` was called.
        self._stop_text = ""
        self._waiters: set[asyncio.Future[None]] = set()
        self._acked = 0
        self._interrupts: dict[int, int] = {}  # The last interrupts: each with the item after which it dropped all.
        self._spoken: dict[int, int] = {}  # By item: how many characters were heard.
        self._speaks = False  # The runtime emits `spoken`.
        self._last_words: dict[int, int] = {}  # By interrupt: the item in which the voice stopped.
        self._ended = False
        self._task = asyncio.create_task(self._run(), name=f"speak {live_id}")

    def __await__(self) -> Generator[Any, None, Heard]:
        return self._task.__await__()

    async def interrupt(self, text: str = "") -> Heard:
        """Stop speaking, and return what was heard. No more tokens are read. `text` goes with the interrupt."""
        self._stop_text = text
        self._stopping = True
        self._changed()
        return await self._task

    # -- the turn

    async def _run(self) -> Heard:
        following = asyncio.create_task(self._follow(), name=f"events {self.live_id}")
        following.add_done_callback(lambda _: self._changed())
        try:
            try:
                await self._speak(following)
            except Refused as refused:
                if refused.code not in ("ENDED", "CLOSING"):
                    raise
                await self._until(lambda: self._ended, following)
            await self._last_word(following)
            return self._heard()
        finally:
            await cancel(following)
            await self._close_tokens()

    async def _speak(self, following: asyncio.Task[None]) -> None:
        """Store the sentences until all of them were heard, an interrupt came, or the live has ended."""
        async with self._client.stream(self.live_id) as stream:
            reading = asyncio.create_task(self._read(stream))
            reading.add_done_callback(lambda _: self._changed())
            try:
                await self._until(lambda: reading.done() or self._over, following)
                if reading.done():
                    reading.result()
            finally:
                await cancel(reading)
                await self._close_tokens()
            await stream.flush()
            await self._until(lambda: self._over or self._all_acked, following)
            stopped = self._stopped_at()
            if self._stopping and not self._ended and not self._all_acked:
                await self._interrupt(stream)
            elif stopped is not None and self._last > stopped[0]:
                # Somebody else interrupted, and what was stored since then would be spoken.
                await stream.push(kind="interrupt")

    async def _read(self, stream: Stream) -> None:
        """Store the sentences, as far ahead of what is heard as AHEAD_MAX allows."""
        joined = Sentences()
        async for token in self._tokens:
            for text in joined.add(token):
                await self._send(stream, text)
        if rest := joined.rest():
            await self._send(stream, rest)
        self._read_all = True

    async def _send(self, stream: Stream, text: str) -> None:
        while len(self._sentences) >= AHEAD_MAX and not 0 < self._number(-AHEAD_MAX) <= self._acked:
            await self._change()
        self._sentences.append(_Sentence(text, await stream.send(text, boundary=True)))

    async def _interrupt(self, stream: Stream) -> None:
        pushed = await stream.push(self._stop_text, kind="interrupt")
        if pushed.seq is not None:
            self._interrupted(pushed.seq, pushed.seq - 1 - pushed.dropped)

    async def _last_word(self, following: asyncio.Task[None]) -> None:
        """Wait until the runtime has reacted to the interrupt, and, if it emits `spoken`, has said how far it came."""
        if (stopped := self._stopped_at()) is None:
            return
        seq = stopped[0]
        await self._until(lambda: self._ended or self._acked >= seq or self._told(seq), following)
        if self._speaks and not self._ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SPOKEN_S):
                    await self._until(lambda: self._ended or self._told(seq), following)

    def _told(self, interrupt: int) -> bool:
        return any(each >= interrupt for each in self._last_words)

    def _heard(self) -> Heard:
        heard, whole = "", []
        upto = self._heard_whole()
        for index, sentence in enumerate(self._sentences):
            seq = self._number(index)
            chars = len(sentence.text) if 0 < seq <= upto else self._spoken.get(seq, 0) if seq else 0
            heard += sentence.text[:chars]
            if chars < len(sentence.text):
                break
            whole.append(seq)
        return Heard(heard, self._read_all and len(whole) == len(self._sentences), tuple(whole))

    def _heard_whole(self) -> int:
        """Return the last item that was heard as a whole: acked, or before the one in which the voice stopped."""
        if (stopped := self._stopped_at()) is None:
            return self._acked
        last_words = min((item for item in self._last_words.items() if item[0] >= stopped[0]), default=(0, 0))
        return max(stopped[1], last_words[1] - 1)

    # -- what is known of the live

    async def _follow(self) -> None:
        async for event in self._client.events(self.live_id):
            self._take(event)
            self._changed()

    def _take(self, event: Event) -> None:
        data = event.data
        match event.name:
            case "acked":
                self._acked = max(self._acked, data["acked"])
            case "interrupted":
                self._interrupted(data["seq"], data["after"])
            case "emitted" if data["name"] == "spoken":
                with contextlib.suppress(msgspec.ValidationError):
                    self._take_spoken(msgspec.convert(data["data"], _Spoken))
            case "ended":
                self._ended = True

    def _take_spoken(self, said: _Spoken) -> None:
        self._speaks = True
        self._spoken[said.seq] = said.chars
        if said.interrupt is not None:
            self._last_words[said.interrupt] = said.seq

    def _interrupted(self, seq: int, after: int) -> None:
        self._interrupts[seq] = min(after, self._interrupts.get(seq, after))
        if len(self._interrupts) > INTERRUPTS_MAX:
            stopped, earliest = self._stopped_at(), min(self._interrupts)
            ends_the_turn = stopped is not None and stopped[0] == earliest
            del self._interrupts[max(self._interrupts) if ends_the_turn else earliest]

    def _stopped_at(self) -> tuple[int, int] | None:
        """Return the first interrupt behind the first item of this turn, and the last item that was acked before it."""
        first = self._number(0) if self._sentences else 0
        return min(((seq, after) for seq, after in self._interrupts.items() if 0 < first < seq), default=None)

    def _number(self, index: int) -> int:
        """Return the number of a sentence, 0 if it is not known to be stored.

        If the answer was lost, the sentence stands right before the next one that has a number: of items that were sent
        again, the store knows the last one's.
        """
        found = 0
        for back, sentence in enumerate(self._sentences[index:]):
            if not sentence.seq and sentence.stored.done() and sentence.stored.exception() is None:
                sentence.seq = sentence.stored.result().seq or 0
            if sentence.seq:
                found = sentence.seq - back
                break
            if not sentence.stored.done():
                break
        if found:
            self._sentences[index].seq = found
        return found

    @property
    def _last(self) -> int:
        return self._number(-1) if self._sentences else 0

    @property
    def _all_acked(self) -> bool:
        return self._read_all and (not self._sentences or 0 < self._last <= self._acked)

    @property
    def _over(self) -> bool:
        return self._ended or self._stopping or self._stopped_at() is not None

    def _changed(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def _until(self, condition: Callable[[], bool], following: asyncio.Task[None]) -> None:
        """Wait until it is so. Raise the error of the events, if they cannot be followed any more."""
        while not condition():
            if following.done():
                following.result()
            await self._change()

    async def _close_tokens(self) -> None:
        if (close := getattr(self._tokens, "aclose", None)) is not None:
            await close()
