"""What a Worker does before it registers: typed options, setup, devices."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import typing
from dataclasses import fields
from pathlib import Path

import pytest

from dhsched import testing
from dhsched.cells.workers import Registration
from dhsched.errors import BadSetting, DeviceBusy, SetupFailed
from dhsched.types import Generation
from dhsched.worker import Session, Worker, run, setup
from dhsched.worker.devices import locked
from dhsched.worker.options import WorkerOptions, settings_of
from dhsched.worker.runtimes import load_function, load_runtime, null
from dhsched.worker.settings import WorkerSettings
from tests.harness.nowhere import Nowhere


def test_every_setting_is_an_option_of_the_same_type() -> None:
    options, settings = typing.get_type_hints(WorkerOptions), typing.get_type_hints(WorkerSettings)
    assert {*options} == {each.name for each in fields(WorkerSettings)} | {"config"}
    same = {name for name in options if name not in ("config", "dispatch")}
    assert {name: options[name] for name in same} == {name: settings[name] for name in same}
    for function in (run, Worker.__init__):
        assert "Unpack[WorkerOptions]" in str(inspect.signature(function))


def test_options_are_checked() -> None:
    made = settings_of({"pool": "gpu", "capacity": 2, "dispatch": ["http://a:1", "http://b:1"], "device": "gpu0, gpu1"})
    assert made.dispatch == ("http://a:1", "http://b:1") and made.devices == ("gpu0", "gpu1")
    with pytest.raises(BadSetting, match=r"no setting capacty.*capacity"):
        settings_of({"pool": "gpu", "capacty": 2})
    with pytest.raises(BadSetting, match="twice"):
        settings_of({"pool": "gpu", "capacity": 2, "device": "gpu0,gpu0"})
    for name in ("nothing", ":function", "module:", ":"):
        with pytest.raises(BadSetting, match=rf"setup '{name}' is not of the form package\.module:function"):
            load_function("setup", name)


def test_the_avatar_names_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadSetting, match=r"modules that are missing \(.*pip install 'dhsched\[avatar\]'"):
        load_runtime("avatar")


async def test_setup_returns_what_sessions_share() -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return "model"

    assert await setup.set_up(later) == "model" == await setup.set_up(lambda: "model")
    assert await setup.set_up(None) is None
    seen: list[tuple[object, str]] = []

    async def sees(session: Session) -> None:
        seen.append((session.shared, session.device))
        await null(session)

    async with testing.live(sees, shared="model", device="gpu1"):
        pass
    assert seen == [("model", "gpu1")]


async def test_a_setup_that_fails_says_why_and_where() -> None:
    def broken() -> None:
        raise MemoryError("no room for the model")

    with pytest.raises(SetupFailed, match=r"broken failed, and the Worker has not registered: MemoryError: no room"):
        await setup.set_up(broken)


async def test_a_setup_that_is_slow_is_logged_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "SLOW_S", 0.01)
    said: list[dict[str, object]] = []

    class Log:
        def warning(self, _: str, **fields: object) -> None:
            said.append(fields)

    monkeypatch.setattr(setup, "log", Log())

    async def slow() -> None:
        while not said:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    await setup.set_up(slow)
    assert "slow" in str(said[0]["setup"]) and said[0]["place"]


async def test_sessions_are_spread_over_the_devices(tmp_path: Path) -> None:
    ends = {number: asyncio.Event() for number in range(5)}

    async def run(session: Session) -> None:
        with devices.used_by(session):
            await ends[session.generation.epoch].wait()

    async with locked(("gpu0", "gpu1"), tmp_path) as devices:
        with pytest.raises(DeviceBusy, match="gpu1"):
            async with locked(("gpu2", "gpu1"), tmp_path):
                pass
        sessions = [Session("t/a", Generation("w#1", number), Nowhere()) for number in range(5)]
        tasks = [asyncio.ensure_future(run(session)) for session in sessions[:4]]
        await asyncio.sleep(0)
        assert [session.device for session in sessions[:4]] == ["gpu0", "gpu1"] * 2
        ends[1].set()
        await tasks[1]
        tasks.append(asyncio.ensure_future(run(sessions[4])))
        await asyncio.sleep(0)
        assert sessions[4].device == "gpu1"
        for end in ends.values():
            end.set()
        await asyncio.gather(*tasks)
        assert [*devices.runtimes.values()] == [0, 0]
        devices.remember(Registration("", "m#4"))
        assert devices.last_boot("m") == Registration("", "m#4") and devices.last_boot("other") is None
