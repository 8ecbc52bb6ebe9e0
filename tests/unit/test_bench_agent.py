"""The benchmark of the agent runs and prints what is asked for; its ratio is for `dhsched bench recovery`."""

import pytest

from dhsched.bench import agent


async def test_every_size_has_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "SIZES", (5, 40))
    monkeypatch.setattr(agent, "STARTS", 3)
    figures = await agent.bench_agent()
    assert figures.keys() == {"agent_us_per_start_5", "agent_us_per_start_40", "agent_start_ratio"}
    assert all(value > 0 for value in figures.values())


async def test_a_worker_has_as_many_lives_after_a_start_as_before() -> None:
    worker = agent.BusyWorker(10)
    await worker.fill()
    for _ in range(3):
        await worker.start_one()
        assert worker.agent.runtimes == len(worker.agent.rules.table) == 10
        assert not worker.agent.rules.finished and not worker.agent.rules.unsettled
    worker.agent.stop_all()
    await worker.agent.stopped()
