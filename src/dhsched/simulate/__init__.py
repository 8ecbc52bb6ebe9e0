"""The same policies without a network: workloads of the paper's placement experiments, and a fleet to run them on."""

from dhsched.simulate.fleet import Result, Schedule, simulate
from dhsched.simulate.workloads import SimulatedWorker, Workload, burst, hierarchy

__all__ = ["Result", "Schedule", "SimulatedWorker", "Workload", "burst", "hierarchy", "simulate"]
