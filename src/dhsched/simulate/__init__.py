"""Simulation of the product's placement policies without a network: workloads, and a fleet in memory.

- *workload* (workloads.py): a fleet and the creates that arrive at its replicas; two of them are the paper's.
- *plan* (plan.py): the workload of `dhsched simulate`, as its user writes it into a YAML or JSON file.
- *schedule* (fleet.py): when the replicas refresh their views, counted in placements per snapshot.
- *result* (fleet.py): spread of loads, rejected candidates and failed creates of one run.

`read_plan` and `workload_of` (plan.py), or `burst` and `hierarchy` (workloads.py), make a workload; `simulate`
(fleet.py) runs `placement.choose` for each create against its own loads and returns the result.
"""

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
