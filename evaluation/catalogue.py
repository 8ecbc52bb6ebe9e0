"""Every experiment, in the paper's order."""

from evaluation import admission, authority, hierarchy, placement, recovery, sensitivity, validation
from evaluation.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    authority.EXPERIMENT,
    validation.EXPERIMENT,
    admission.EXPERIMENT,
    recovery.EXPERIMENT,
    placement.EXPERIMENT,
    hierarchy.EXPERIMENT,
    sensitivity.EXPERIMENT,
)
