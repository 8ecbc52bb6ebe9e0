"""The socket of a stream of pushes: when its client is read from."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhsched.infer.settings import InferSettings
from dhsched.infer.stream import StreamPeer
from dhsched.links.outbox import OUTBOX_BYTES_FULL, Outbox


def peer_with(send: Any) -> StreamPeer:
    inputs = SimpleNamespace(settings=InferSettings(), append_soon=None, pushed=None)
    peer = StreamPeer(cast(Any, inputs), cast(Any, SimpleNamespace(tenant="t")), "a", "p")
    peer._outbox = Outbox(send, peer._drained)
    peer._outbox.put("an answer", OUTBOX_BYTES_FULL)
    peer._sending = asyncio.create_task(peer._outbox.run())
    peer._sending.add_done_callback(lambda _: peer._drained())
    return peer


@pytest.mark.parametrize("lost", [False, True])
async def test_a_client_is_read_from_when_it_has_read_or_will_never_read(lost: bool) -> None:
    may_send = asyncio.Event()

    async def send(_: bytes) -> None:
        await may_send.wait()
        if lost:
            raise ConnectionResetError

    peer = peer_with(send)
    waiting = asyncio.create_task(peer._wait_until_read())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    may_send.set()
    await asyncio.wait_for(waiting, 60.0)
    peer._sending.cancel()
    await asyncio.gather(peer._sending, return_exceptions=True)
