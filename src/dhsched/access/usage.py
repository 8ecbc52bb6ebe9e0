"""Items that one replica has accepted for each tenant, until the store has added them up. Pure.

Items go to the store in batches, a batch at a time. A batch whose writing failed may have been written all the same: it
is given out again unchanged, under its number, by which the store knows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

BATCH_MAX = 500  # Tenants in one batch, about two milliseconds of the store's time; further ones are in the next.


@dataclass(frozen=True, slots=True)
class Batch:
    """Items by tenant. A replica's batches are numbered from 1."""

    number: int = 0
    items: Mapping[str, int] = field(default_factory=dict)


class Usage:
    """The items of one replica. `items` are those that are in no batch yet."""

    def __init__(self) -> None:
        self.items: Counter[str] = Counter()
        self._batch = Batch()

    @property
    def unwritten(self) -> bool:
        """Whether the store may not have all items."""
        return bool(self.items or self._batch.items)

    def next_batch(self) -> Batch:
        """Return the batch to write: the last one until it is written, else a new one, empty if there are no items."""
        if not self._batch.items and self.items:
            taken = dict(islice(self.items.items(), BATCH_MAX))
            for tenant in taken:
                del self.items[tenant]
            self._batch = Batch(self._batch.number + 1, taken)
        return self._batch

    def written(self, batch: Batch) -> None:
        """Forget the items of a batch that the store has."""
        assert batch.number == self._batch.number, f"batch {batch.number} was written, {self._batch.number} is the last"
        self._batch = Batch(batch.number)
