"""The same policies without a network: workloads of the paper's placement experiments, and a fleet to run them on."""

from dhsched.simulate.fleet import Result, Schedule, simulate
from dhsched.simulate.plan import Plan, plan_of, read_plan, workload_of
from dhsched.simulate.workloads import SimulatedWorker, Workload, burst, hierarchy

__all__ = [
    "Plan",
    "Result",
    "Schedule",
    "SimulatedWorker",
    "Workload",
    "burst",
    "hierarchy",
    "plan_of",
    "read_plan",
    "simulate",
    "workload_of",
]
