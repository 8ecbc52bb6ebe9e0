"""The choice of a Worker for a new generation: pure functions of a view, a request and chance (paper, section 5).

One replica's round:

    view.apply(snapshot, now=...)                       every 200 ms to 1 s
    choice = choose(view, request, rng=..., now=...)    ranks of candidates and Pools for `place`
    view.committed(worker, rev=...)                     at once, when a slot was taken
    view.correct(worker, rev=..., load=...)             when a refusal carried the true load
    explain(choice, view=view)                          only on request

Words: a *snapshot* is the store's loads as of a rev; a *delta* is an own assignment that the snapshot does not contain;
*effective load* is snapshot load plus weighted deltas; *barred* says why a Worker takes nothing new; a Pool's
*waterline* is its effective share of capacity; the *bottom tier* is its emptiest Workers.
Walk: choose.py orders the Pools (pools.py) and calls a policy (policies.py, baselines.py), which draws Workers
(workers.py) from the buckets (index.py) of the view (view.py); share.py weighs the deltas.
"""

from dhsched.placement.choose import choose, name_worker, unplaceable
from dhsched.placement.explain import Explanation, Refusal, Won, explain
from dhsched.placement.policies import DEFAULT_POLICY, POLICIES, view_for
from dhsched.placement.policy import Policy
from dhsched.placement.pools import CANDIDATES_LIMIT, DigitalID, Pool, PoolEntry
from dhsched.placement.request import Choice, NoEligiblePool, PlacementRequest, request_for
from dhsched.placement.view import FleetView, Refreshed, Snapshot, Weighing, WorkerRow

__all__ = [
    "CANDIDATES_LIMIT",
    "DEFAULT_POLICY",
    "POLICIES",
    "Choice",
    "DigitalID",
    "Explanation",
    "FleetView",
    "NoEligiblePool",
    "PlacementRequest",
    "Policy",
    "Pool",
    "PoolEntry",
    "Refreshed",
    "Refusal",
    "Snapshot",
    "Weighing",
    "Won",
    "WorkerRow",
    "choose",
    "explain",
    "name_worker",
    "request_for",
    "unplaceable",
    "view_for",
]
