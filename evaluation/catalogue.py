"""Every experiment, in the paper's order."""

from evaluation import (
    admission,
    authority,
    hierarchy,
    placement,
    production,
    recovery,
    runtime,
    sensitivity,
    validation,
)
from evaluation.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (
        authority,
        validation,
        admission,
        recovery,
        placement,
        hierarchy,
        sensitivity,
        runtime,
        production,
    )
)
