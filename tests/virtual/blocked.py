"""Workers whose event loop is blocked: the loop has no turn, while the watchdog, which is a thread, goes on.

The thread is a node of its own here. What it does is decided by the product's rule (`decide`), and a beat goes to the
product's endpoint; the thread itself and its HTTP client are left out.

The judge `blocked`: a Worker whose loop is blocked for less than `blocked_max_s` is not called lost. Where another
fault is near, nothing is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from dhsched.links.messages import REPORT_S
from dhsched.worker import main as worker_main
from dhsched.worker.watchdog import POST_S, RETRY_S, TICK_S, UNAUTHORIZED, Beat, FallSilent, Speaker, Watch, decide
from tests.virtual.loop import NODE, Node, VirtualLoop
from tests.virtual.net import Net

ALONE_S = 30.0  # A block is judged if no other fault has ended in this time before it, and none begins during it.
SHORT_S = 1.0  # A block that is shorter than blocked_max_s by less than this is not judged.


class Watched:
    """What a Worker hands its watchdog, in the place of a `Watchdog`."""

    def __init__(self, blocked_max_s: float) -> None:
        self.blocked_max_s = blocked_max_s
        self.speaker: Callable[[], Speaker | None] = lambda: None


class Watchdogs:
    """See the module. `is_lost` says of a WorkerID whether the store calls it lost, `passed` takes limits."""

    def __init__(
        self,
        loop: VirtualLoop,
        net: Net,
        is_lost: Callable[[str], bool],
        wrong: Callable[[str], None],
        passed: Callable[[str], None],
    ) -> None:
        self._loop, self._net, self._is_lost, self._wrong, self._passed = loop, net, is_lost, wrong, passed
        self._watched: dict[Node, Watched] = {}
        self._faults, self._begun = 0, 0
        self._quiet_since = 0.0

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let Workers have these watchdogs."""
        main: Any = worker_main
        kept = main.watching, main.client_tls
        main.watching, main.client_tls = self._watching, lambda ca: None
        try:
            yield
        finally:
            main.watching, main.client_tls = kept

    @contextmanager
    def _watching(self, blocked_max_s: float, tls: None) -> Iterator[Watched]:
        node = NODE.get()
        assert node is not None
        self._watched[node] = watched = Watched(blocked_max_s)
        try:
            yield watched
        finally:
            self._watched.pop(node, None)

    @contextmanager
    def among_faults(self) -> Iterator[None]:
        """A fault is under way."""
        self._faults, self._begun = self._faults + 1, self._begun + 1
        try:
            yield
        finally:
            self._faults, self._quiet_since = self._faults - 1, self._loop.now

    async def block(self, node: Node, for_s: float) -> None:
        """Give the loop of a Worker no turn for so long. This is one of the faults that are under way."""
        watched = self._watched.get(node)
        speaker = watched.speaker() if watched is not None else None
        if watched is None or speaker is None:
            return  # It has not registered yet, and there is nothing that could block.
        alone, begun = self._faults == 1 and self._loop.now - self._quiet_since > ALONE_S, self._begun
        was_lost = self._is_lost(speaker.worker)
        thread = Node(self._loop, f"{node.name} watchdog", node.host)
        node.freeze()
        thread.spawn(self._watch(node, watched), "watchdog")
        await asyncio.sleep(for_s)
        alone = alone and begun == self._begun and not was_lost and not node.dead
        if alone and for_s < watched.blocked_max_s - SHORT_S and self._is_lost(speaker.worker):
            self._wrong(f"blocked: {speaker.worker} was called lost when its loop was blocked for {for_s:.1f} s")
        self._net.kill(thread)
        thread.kill()
        if node.frozen:
            node.thaw()

    async def _watch(self, node: Node, watched: Watched) -> None:
        """What the thread does from the moment at which the loop does not turn."""
        loop, failed = self._loop, 0
        watch = Watch(turns=0, since=loop.now, read_at=loop.now)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=POST_S)) as http:
            while not node.dead:
                await asyncio.sleep(TICK_S)
                watch, actions = decide(watch, now=loop.now, turns=0, blocked_max_s=watched.blocked_max_s)
                for action in actions:
                    if isinstance(action, FallSilent):
                        self._passed("worker.blocked_max_s")
                    elif isinstance(action, Beat):
                        settled = await self._beat(http, watched.speaker(), action, failed)
                        failed = 0 if settled else failed + 1
                        told = watch.told or (action.tell and settled)
                        beat_at = watch.beat_at if settled else loop.now + RETRY_S - REPORT_S
                        watch = replace(watch, told=told, beat_at=beat_at)
                if actions:
                    watch = replace(watch, read_at=loop.now)

    @staticmethod
    async def _beat(http: aiohttp.ClientSession, speaker: Speaker | None, beat: Beat, failed: int) -> bool:
        """Send one beat; return whether a replica took it."""
        if speaker is None:
            return True
        body = {"blocked_ms": int(beat.blocked_s * 1000), "frame": "runtime.py:1 work", "tell": beat.tell}
        replica = speaker.urls[failed % len(speaker.urls)]
        url = URL(f"{replica}/v1/workers/{quote(speaker.worker)}/blocked", encoded=True)
        try:
            async with http.post(url, json=body, headers={"Authorization": f"Bearer {speaker.token}"}) as answer:
                return answer.ok or answer.status in UNAUTHORIZED
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
