"""Simulation of the product's placement policies without a network: workloads, and a fleet in memory.

- *workload* (fleet.py): a fleet and the creates that arrive at its replicas.
- *plan* (plan.py): the workload of `dhsched simulate`, as its user writes it into a YAML or JSON file.
- *schedule* (fleet.py): when the replicas refresh their views, counted in placements per snapshot.
- *result* (fleet.py): spread of loads, rejected candidates and failed creates of one run.

`read_plan` and `workload_of` (plan.py) make a workload; `simulate` (fleet.py) runs `placement.choose` for each create
against its own loads and returns the result. The paper's workloads are in evaluation/workloads.py.
"""

from dhsched.simulate.fleet import Result, Schedule, SimulatedWorker, Workload, simulate
from dhsched.simulate.plan import Plan, plan_of, read_plan, workload_of

__all__ = [
    "Plan",
    "Result",
    "Schedule",
    "SimulatedWorker",
    "Workload",
    "plan_of",
    "read_plan",
    "simulate",
    "workload_of",
]
