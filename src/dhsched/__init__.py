"""dhsched: the control plane for long-lived, stateful, real-time sessions on GPU machines."""

__version__ = "0.2.0"
