"""A stream of pushes for unit tests, and readers of its actions."""

from __future__ import annotations

from itertools import count

from dhsched.client.models.input import Answer, Push
from dhsched.errors import StoreUnavailable
from dhsched.infer.push_stream import Actions, ArmTimer, Item, Line, PushStream

JOIN_S = 0.04
DEADLINE_S = 1.0
LOST = StoreUnavailable("no answer", unknown=True)
AWAY = StoreUnavailable("nobody there", unknown=False)


def stream(live_id: str = "a", producer: str = "p", in_flight_max: int = 100) -> PushStream:
    requests = count(1)
    return PushStream(
        tenant="t",
        live_id=live_id,
        producer=producer,
        text_bytes_max=8,
        in_flight_max=in_flight_max,
        join_s=JOIN_S,
        deadline_s=DEADLINE_S,
        new_request=lambda: f"r{next(requests)}",
    )


def tokens(*texts: str) -> list[Push]:
    return [Push(token=text) for text in texts]


def numbered(*numbers: int, live: str = "a") -> list[Push]:
    return [Push(live=live, n=n, text=f"x{n}") for n in numbers]


def appends(actions: Actions) -> list[Item]:
    return [each for each in actions if isinstance(each, Item)]


def only_append(actions: Actions) -> Item:
    (item,) = appends(actions)
    return item


def answers(actions: Actions) -> list[Answer]:
    return [each for each in actions if isinstance(each, Answer)]


def timers(actions: Actions) -> list[float]:
    return [each.at for each in actions if isinstance(each, ArmTimer)]


def codes(actions: Actions) -> list[str]:
    return [each.problem["code"] if each.problem else "" for each in answers(actions)]


def line_of(machine: PushStream, live_id: str = "a") -> Line:
    return machine._lines[live_id]
