"""What a policy is: the one interface of ours and of those that ours are compared with."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from dhsched.placement.index import WorkerView
from dhsched.placement.pools import CANDIDATES_FEW, RankedPool
from dhsched.placement.request import PlacementRequest
from dhsched.placement.view import Weighing


@dataclass(frozen=True, slots=True)
class Policy(ABC):
    """How candidates are found. The view must be made with the policy's weighing: see `view_for`."""

    name: str
    weighing: Weighing = Weighing.SHARE
    """What own assignments add to the view."""
    corrects: bool = False
    """Whether refusals that carry the true load correct the view; the paper's policies do without."""
    compares: bool = False
    """Whether the store compares candidates that stand equal by their true loads, instead of taking the first."""
    candidates: int = CANDIDATES_FEW
    """How many candidates it names where nobody asks for another number."""

    @abstractmethod
    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        """Up to `count` distinct placeable Workers of these Pools, best first."""
