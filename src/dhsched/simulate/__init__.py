"""Simulation of the product's placement policies without a network: workloads, and a fleet in memory.

- *workload* (fleet.py): a fleet and the creates that arrive at its replicas.
- *plan* (plan.py): the workload of `dhsched simulate`, as its user writes it into a YAML or JSON file.
- *schedule* (fleet.py): when the replicas refresh their views, counted in placements per snapshot.
- *result* (fleet.py): spread of loads, rejected candidates and failed creates of one run.
- *fill* (cells.py): the share of the slots that stays taken while creates are measured over several cells.

`read_plan` and `workload_of` (plan.py) make a workload; `simulate` (fleet.py) runs `placement.choose` for each create
against its own loads and returns the result; `simulate_cells` (cells.py) does it over several cells. The paper's
workloads are in evaluation/workloads.py.
"""

from dhsched.simulate.cells import CellsResult, Ids, simulate_cells
from dhsched.simulate.fleet import Result, Schedule, SimulatedWorker, Workload, simulate
from dhsched.simulate.plan import FILL, Plan, cell_counts, plan_of, read_plan, workload_of

__all__ = [
    "FILL",
    "CellsResult",
    "Ids",
    "Plan",
    "Result",
    "Schedule",
    "SimulatedWorker",
    "Workload",
    "cell_counts",
    "plan_of",
    "read_plan",
    "simulate",
    "simulate_cells",
    "workload_of",
]
