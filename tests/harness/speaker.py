"""A runtime that speaks a word at a time, and notes what was really heard: the judge of conversations."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dhsched.worker.inbox import SessionInbox
from dhsched.worker.session import Item, Session

WORD_S = 0.002


@dataclass
class Speaker:
    """A runtime that speaks a word at a time. It notes what was really heard: items as a whole, and at interrupts."""

    whole: dict[int, str] = field(default_factory=dict)
    cuts: dict[int, tuple[int, str]] = field(default_factory=dict)
    words: int = 0

    async def __call__(self, session: Session) -> None:
        spoken: tuple[Item, int] | None = None

        def interrupted() -> None:
            nonlocal spoken
            item, heard = (spoken[0].seq, spoken[0].text[: spoken[1]]) if spoken else (0, "")
            self.note_cut(SessionInbox(session).accepted[0], item, heard)
            session.spoken(*spoken or (None,))
            spoken = None

        session.on_interrupt = interrupted
        async for item in session.inputs(auto_ack=False):
            if item.kind == "text":
                spoken = (item, 0)
                for word in re.finditer(r"\S+\s*", item.text):
                    await asyncio.sleep(WORD_S)
                    if spoken is None:
                        break
                    self.note_word()
                    spoken = (item, word.end())
                    session.spoken(*spoken)
                else:
                    self.note_whole(item.seq, item.text)
                    session.ack(item)
            else:
                session.ack(item)

    def note_word(self) -> None:
        self.words += 1

    def note_whole(self, item: int, text: str) -> None:
        self.whole[item] = text

    def note_cut(self, interrupt: int, item: int, text: str) -> None:
        """Note the item in which an interrupt stopped the voice, and what of it was heard."""
        self.cuts[interrupt] = (item, text)


class Printer(Speaker):
    """The same in a process of its own: each note is a line, which outlives the process."""

    def note_word(self) -> None:
        print(json.dumps({"note": "word", "of": []}), flush=True)

    def note_whole(self, item: int, text: str) -> None:
        print(json.dumps({"note": "whole", "of": [item, text]}), flush=True)

    def note_cut(self, interrupt: int, item: int, text: str) -> None:
        print(json.dumps({"note": "cut", "of": [interrupt, item, text]}), flush=True)


def notes_of(lines: Iterable[Any]) -> Speaker:
    """What Printers have noted, all together."""
    speaker = Speaker()
    for line in lines:
        if "note" in line:
            getattr(speaker, f"note_{line['note']}")(*line["of"])
    return speaker


async def speak(session: Session) -> None:
    """The runtime: `--runtime tests.harness.speaker:speak`."""
    await Printer()(session)


async def answer(turn: int, r: Random) -> AsyncIterator[str]:
    for sentence in range(r.randint(1, 4)):
        for word in range(r.randint(2, 6)):
            yield f"t{turn}s{sentence}w{word} "
        yield f"end{turn}.{sentence}. "


async def text_of(tokens: AsyncIterator[str]) -> str:
    return "".join([token async for token in tokens])


def really_heard(speaker: Speaker, turn: int) -> str:
    """What the runtime spoke of this turn, up to the first interrupt behind its first item."""
    spoken = {
        seq: text for seq, text in [*speaker.cuts.values(), *speaker.whole.items()] if text.startswith(f"t{turn}s")
    }
    stopped = min((n for n in speaker.cuts if n > min(spoken, default=n)), default=2**50)
    return "".join(spoken[seq] for seq in sorted(spoken) if seq < stopped)
