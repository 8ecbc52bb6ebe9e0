"""The interface of a policy: our own, and the ones that they are compared with."""

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
    """Ranks candidates. The view must be made with the policy's weighing: see `view_for`."""

    name: str
    weighing: Weighing = Weighing.SHARE
    """The weight of own assignments in the view."""
    corrects: bool = False
    """Whether refusals that carry the true load correct the view; the paper's policies do without."""
    compares: bool = False
    """Whether the store compares equal candidates by their true loads, instead of taking the first."""
    candidates: int = CANDIDATES_FEW
    """The number of candidates, unless the request or the Pool sets another."""

    @abstractmethod
    def rank(self, pools: Sequence[RankedPool], count: int, request: PlacementRequest, rng: Random) -> list[WorkerView]:
        """Return up to `count` distinct placeable Workers of these Pools, best first."""
