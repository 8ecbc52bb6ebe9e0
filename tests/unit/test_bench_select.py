"""The select benchmark runs with the default policy; its figures are for a quiet machine."""

from dhsched.bench.select import run


def test_every_figure_is_measured() -> None:
    figures = run(decisions=250)
    assert len(figures) == 8 and all(value > 0 for value in figures.values())
