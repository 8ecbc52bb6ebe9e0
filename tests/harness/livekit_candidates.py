"""The addresses of a client of the stand-in for livekit-server (livekit_server.py)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import traceback

from aiortc import RTCPeerConnection

ANSWER_S = 20.0  # A client that does not answer an offer, or names no address, for this long gets no further offers.


def tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        traceback.print_exception(error)


async def settled(pc: RTCPeerConnection) -> None:
    """Wait until the connection is there, or is not to be had. What a description adds while aiortc is connecting is
    never sent, nor received."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            while pc.connectionState in ("new", "connecting"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


class Candidates:
    """The addresses of one connection of a client. aiortc gives up at once on a description that has none, and clients
    send theirs after it: the first description waits for the first address, and gets what is there by then."""

    def __init__(self) -> None:
        self._some = asyncio.Event()
        self._texts: list[str] = []
        self._completed = False

    def takes(self, candidate: str) -> bool:
        """Keep an address for the first description; return False if that is over."""
        if not self._completed:
            self._texts.append(candidate)
            self._some.set()
        return not self._completed

    async def complete(self, sdp: str) -> str:
        if self._completed or "\na=candidate:" in sdp:
            self._completed = True
            return sdp
        async with asyncio.timeout(ANSWER_S):
            await self._some.wait()
        self._completed = True
        head, *sections = re.split(r"(?m)^(?=m=)", sdp)
        sections[0] += "".join(f"a={text}\r\n" for text in self._texts)
        return head + "".join(sections)
