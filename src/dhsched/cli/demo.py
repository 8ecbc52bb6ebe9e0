"""`dhsched demo`: a live survives a kill, a drain and a frozen Worker (A to B to A), on a deployment of its own.

The processes, the store, the sockets, kill -9 and SIGSTOP are real. The times in the timeline are measured.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from dhsched.cli.sample import UpSettings, sample
from dhsched.client import Client
from dhsched.local.process import Process
from dhsched.local.waiting import until

LIVE = "anna"
STEP_S = 30.0  # A step that takes longer ends the demo with an error.


@dataclass(frozen=True, slots=True)
class Heard:
    """One line that a runtime printed: the item that it consumed, and as which generation."""

    at: float
    worker: str
    epoch: int
    event: str
    text: str


@dataclass(slots=True)
class Story:
    """The timeline (`rows`) and the lines of the runtimes (`heard`), with times of one clock."""

    began: float = field(default_factory=time.monotonic)
    heard: list[Heard] = field(default_factory=list)
    rows: list[tuple[float, str]] = field(default_factory=list)

    def tell(self, what: str) -> float:
        """Print a line of the timeline and return its time."""
        now = time.monotonic()
        self.rows.append((now, what))
        typer.echo(f"{now - self.began:8.3f} s  {what}")
        return now

    def hear(self, _name: str, line: bytes) -> None:
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            return
        if said.get("event") in ("text", "open", "interrupt"):
            event, text = str(said["event"]), str(said.get("text", ""))
            self.heard.append(Heard(time.monotonic(), said["worker"], said["epoch"], event, text))

    async def until(self, wanted: Callable[[Heard], bool], what: str) -> Heard:
        """Wait for the first line of a runtime that is `wanted`; after STEP_S raise an error that names `what`."""
        hint = f"{what}; try it with --log-level info"
        found: Heard = await until(lambda: next(filter(wanted, self.heard), None), hint, STEP_S, every_s=0.01)
        return found


def demo(
    log_level: Annotated[
        str, typer.Option(help="Log level of all processes: debug, info, warning or error.")
    ] = "error",
) -> None:
    """Show a live survive kill -9 of its Worker, a drain, and a frozen Worker that wakes up."""
    asyncio.run(run_demo(log_level))


async def run_demo(log_level: str) -> None:
    settings = UpSettings(workers=3, capacity=4, dispatch_ports=(0, 0), infer_port=0, log_level=log_level)
    story = Story()
    typer.echo("starting a store, two Dispatch replicas, an Infer-Controller, three Workers ...")
    async with sample(settings, story.hear) as made, made.processes.client() as client:
        await Tour(story, made.processes.workers, client).walk()


@dataclass(frozen=True, slots=True)
class Tour:
    """The steps of the demo, in order."""

    story: Story
    workers: Mapping[str, Process]
    client: Client

    async def walk(self) -> None:
        await self.speak()
        await self.kill()
        await self.drain()
        await self.zombie()
        generations = (await self.client.history(LIVE)).generations
        typer.echo(f"\n{len(generations)} generations, one owner at a time:")
        for row in reversed(generations):
            typer.echo(f"  epoch {row.epoch}  {row.worker:<12} because of {row.cause}")

    async def speak(self) -> None:
        placed = await self.client.create(LIVE, live_id=LIVE, wait_s=10)
        self.story.tell(f"created: live {LIVE} is on {placed.worker}, epoch {placed.epoch}")
        await self.say("Good evening.")

    async def kill(self) -> None:
        owner = await self.client.get(LIVE)
        began = self.story.tell(f"kill -9 of {owner.worker}, which is speaking; nobody asks it for help")
        self.process(owner.worker).kill()
        await self.client.push(LIVE, "Did you miss me?", boundary=True)
        found = await self.story.until(lambda h: h.text == "Did you miss me?", "the next Worker to go on")
        self.after(began, f"{found.worker} goes on after the last ack, in epoch {found.epoch}")

    async def drain(self) -> None:
        owner = await self.client.get(LIVE)
        began = self.story.tell(f"drain of {owner.worker}: the live moves at the end of a sentence")
        await self.client.drain(owner.worker)
        await self.client.push(LIVE, "This sentence is said once.", boundary=True)
        await self.moved(owner.epoch)
        await self.say("And here we go on.")
        said = [h for h in self.story.heard if h.text == "This sentence is said once."]
        self.after(began, f"moved; the sentence was consumed {len(said)} time{'s' if len(said) != 1 else ''}")
        await self.client.undrain(owner.worker)

    async def zombie(self) -> None:
        """Freeze A, so that the live moves to B; wake A and move the live back: A then has two epochs of one live."""
        first = await self.client.get(LIVE)
        began = self.story.tell(f"SIGSTOP of {first.worker}: it is frozen, not dead")
        self.process(first.worker).freeze()
        try:
            await self.client.push(LIVE, "Said while A is frozen.", boundary=True)
            second = await self.story.until(
                lambda h: h.text == "Said while A is frozen." and h.epoch > first.epoch, "another Worker to go on"
            )
            self.after(began, f"{second.worker} has taken over in epoch {second.epoch}")
            superseded = time.monotonic()
        finally:
            self.process(first.worker).thaw()
        self.story.tell(f"SIGCONT: {first.worker} wakes up and still believes in epoch {first.epoch}")
        await self.ready(first.worker)
        back = await self.client.reassign(LIVE, to=first.worker)
        self.story.tell(f"moved back to {back.worker} in epoch {back.epoch}: A, B, A")
        await self.say("Only the latest hears this.")
        zombie = [h for h in self.story.heard if h.epoch == first.epoch and h.at > superseded and h.event == "text"]
        given = sum(h.text.startswith("Only") for h in zombie)
        had = f"items: {len(zombie) - given}, acks refused"
        self.story.tell(f"the zombie of epoch {first.epoch} played what it had ({had}),")
        self.story.tell(f"and was given {given} items since")

    # -- helpers

    async def say(self, text: str) -> None:
        began = time.monotonic()
        await self.client.push(LIVE, text, boundary=True)
        found = await self.story.until(lambda h: h.text == text, f"the words {text!r}")
        self.story.tell(f"{found.worker} (epoch {found.epoch}) says: {text}  [{(found.at - began) * 1000:.0f} ms]")

    def after(self, began: float, what: str) -> None:
        self.story.tell(f"{what}  [{time.monotonic() - began:.2f} s after]")

    async def moved(self, epoch: int) -> None:
        async def claimed_anew() -> bool:
            live = await self.client.get(LIVE)
            return live.epoch > epoch and live.claimed

        await until(claimed_anew, f"live {LIVE} to leave epoch {epoch}", STEP_S, every_s=0.05)

    async def ready(self, worker: str) -> None:
        async def reports() -> bool:
            return worker in [each.worker async for each in self.client.workers(status="ready")]

        await until(reports, f"{worker} to report again", STEP_S)

    def process(self, worker: str) -> Process:
        return self.workers[worker.partition("#")[0]]
