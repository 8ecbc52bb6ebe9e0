"""Every experiment, in the paper's order."""

from evaluation import hierarchy, placement, sensitivity
from evaluation.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (placement.EXPERIMENT, hierarchy.EXPERIMENT, sensitivity.EXPERIMENT)
