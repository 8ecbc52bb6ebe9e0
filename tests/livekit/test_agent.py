"""A whole agent of LiveKit as a live: it talks with who is in the room, and its conversation outlives its process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dhsched.client import Client
from dhsched.local.waiting import until
from tests.harness.livekit_client import WAIT_S, Server, Watcher
from tests.harness.livekit_rig import Rig, rig

MODULE = "tests.harness.livekit_agent"
LENGTHY = "You said 1 things, at last: Speak at length."
CHAT = "lk.chat"  # LiveKit's topic for what a user writes.


class Talk:
    """An agent's live, what it was heard to say, and a user in its room."""

    def __init__(self, made: Rig, client: Client, user: Watcher) -> None:
        self.made, self.client, self.user = made, client, user
        self.heard: list[dict[str, Any]] = []

    async def follow(self) -> None:
        async for event in self.client.events("L"):
            if event.name == "emitted" and event.data["name"] == "heard":
                self.heard.append(event.data["data"] | {"epoch": event.data["epoch"]})

    async def until_heard(self, text: str) -> dict[str, Any]:
        await until(lambda: any(text in each["text"] for each in self.heard), f"{text!r}", WAIT_S)
        return next(each for each in self.heard if text in each["text"])

    async def until_acked(self, seq: int) -> None:
        async def acked() -> bool:
            return (await self.client.get("L")).acked >= seq

        await until(acked, f"the ack of {seq}", WAIT_S)


@asynccontextmanager
async def talking(livekit: Server) -> AsyncIterator[Talk]:
    async with livekit.watching("user") as user, rig(livekit, workers=0) as made, made.client() as client:
        await asyncio.gather(*(made.avatars(name, module=MODULE) for name in ("gpu-0", "gpu-1")))
        await made.until_workers(2)
        await client.create("anna", live_id="L", metadata={"livekit": {"room": livekit.room}})
        talk = Talk(made, client, user)
        following = asyncio.create_task(talk.follow())
        try:
            yield talk
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def test_a_killed_agent_goes_on_with_its_conversation_and_repeats_nothing(livekit: Server) -> None:
    async with talking(livekit) as talk:
        user, client = talk.user, talk.client
        await until(lambda: "anna~1" in user.room.remote_participants, "the agent", WAIT_S)
        await client.push("L", "Good morning.", boundary=True)
        await talk.until_acked(1)
        said = await talk.until_heard("You said 1 things, at last: Good morning.")
        assert said["seq"] == 1 and not said["cut"]
        # What is said in the room is no input of the live, and is kept as well.
        await user.room.local_participant.send_text("And now?", topic=CHAT, destination_identities=["anna~1"])
        assert (await talk.until_heard("You said 2 things, at last: And now?"))["seq"] == 0
        await until(lambda: user.loud_s.get("anna~1", 0) > 0.5, "the voice of the first", WAIT_S)
        (await talk.made.owner("L")).kill()
        await client.push("L", "Are you there?", boundary=True)
        await talk.until_acked(2)
        answer = await talk.until_heard("You said 3 things, at last: Are you there?")
        assert answer["epoch"] == 2 and answer["seq"] == 2
        assert [each["seq"] for each in talk.heard if each["epoch"] == 2] == [2], "nothing is said again"
        await until(lambda: user.loud_s.get("anna~2", 0) > 0.5, "the voice of the second", WAIT_S)
        await until(lambda: "anna~1" not in user.room.remote_participants, "the end of the first", WAIT_S)


async def test_an_interrupt_ends_the_sentence_and_the_conversation_has_what_was_heard(livekit: Server) -> None:
    async with talking(livekit) as talk:
        client = talk.client
        await client.push("L", "Speak at length.", boundary=True)
        await until(lambda: talk.user.loud_s.get("anna~1", 0) > 0.5, "the voice", WAIT_S)
        await client.interrupt("L", "Stop.")
        await until(lambda: talk.heard, "what was heard of it", WAIT_S)
        [cut] = talk.heard[:1]
        assert cut["cut"] and cut["seq"] == 1 and cut["text"].count("word") < 100
        assert f"{LENGTHY} word".startswith(cut["text"].partition(" word")[0].strip())
        await talk.until_heard("You said 2 things, at last: Stop.")
        await talk.until_acked(2)


async def test_a_thawed_agent_is_out_of_the_room_and_the_owner_stays(livekit: Server) -> None:
    left: list[str] = []
    async with talking(livekit) as talk:
        room = talk.user.room
        await client_says(talk, 1)
        zombie = await talk.made.owner("L")
        zombie.freeze()
        await client_says(talk, 2)
        room.on("participant_disconnected", lambda participant: left.append(participant.identity))
        zombie.thaw()
        await until(lambda: "anna~1" not in room.remote_participants, "a room without the zombie", WAIT_S)
        await client_says(talk, 3)
        assert "anna~2" in room.remote_participants and "anna~2" not in left
        assert [each["epoch"] for each in talk.heard] == [1, 2, 2]


async def test_a_drained_agent_ends_its_answer_and_the_next_goes_on_with_the_conversation(livekit: Server) -> None:
    async with talking(livekit) as talk:
        client, room = talk.client, talk.user.room
        await client.push("L", "This is number 1.", boundary=True)
        await until(lambda: talk.user.loud_s.get("anna~1", 0) > 0.2, "the voice of the first", WAIT_S)
        worker = (await client.get("L")).worker
        assert worker is not None
        await client.drain(worker)

        async def moved() -> bool:
            return (await client.get("L")).epoch == 2

        await until(moved, "the next generation", WAIT_S)
        await client_says(talk, 2)
        assert [(each["seq"], each["epoch"], each["cut"]) for each in talk.heard] == [(1, 1, False), (2, 2, False)]
        await until(lambda: "anna~1" not in room.remote_participants, "the end of the first", WAIT_S)


async def client_says(talk: Talk, n: int) -> None:
    await talk.client.push("L", f"This is number {n}.", boundary=True)
    await talk.until_acked(n)
    await talk.until_heard(f"You said {n} things, at last: This is number {n}.")


@pytest.mark.parametrize("kind", ["message", "function_call", "function_call_output"])
def test_what_is_too_large_for_the_journal_is_kept_without_its_content(kind: str) -> None:
    from livekit.agents import ChatContext

    from dhsched.livekit.agent import without_content

    large: dict[str, dict[str, Any]] = {
        "message": {"role": "user", "content": ["x" * 100_000]},
        "function_call": {"call_id": "c", "name": "look", "arguments": '{"x": "' + "x" * 100_000 + '"}'},
        "function_call_output": {"call_id": "c", "name": "look", "output": "x" * 100_000, "is_error": False},
    }
    short = without_content({"id": "i", "type": kind, **large[kind]})
    assert len(str(short)) < 500
    [item] = ChatContext.from_dict({"items": [short]}).items
    assert item.id == "i" and item.type == kind
