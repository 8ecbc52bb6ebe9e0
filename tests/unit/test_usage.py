"""Items on their way to a tenant's usage (access/usage.py), and the metric per tenant with its bound."""

from dhsched.access.usage import BATCH_MAX, Batch, Usage
from dhsched.web.figures import TENANTS_MAX, TenantTotals


def test_quota_usage_gives_a_batch_out_again_until_it_is_written() -> None:
    usage = Usage()
    assert usage.next_batch() == Batch() and not usage.unwritten
    usage.items["acme"] += 2
    first = usage.next_batch()
    assert first == Batch(1, {"acme": 2})
    usage.items["acme"] += 3
    assert usage.next_batch() == first and usage.unwritten
    usage.written(first)
    assert usage.next_batch() == Batch(2, {"acme": 3})
    usage.written(usage.next_batch())
    assert usage.next_batch() == Batch(2) and not usage.unwritten


def test_quota_usage_of_many_tenants_is_in_several_batches() -> None:
    usage = Usage()
    for n in range(BATCH_MAX + 7):
        usage.items[f"t{n}"] += 1
    sizes = []
    while usage.unwritten:
        batch = usage.next_batch()
        sizes.append(len(batch.items))
        usage.written(batch)
    assert sizes == [BATCH_MAX, 7]


def test_quota_usage_metric_has_a_bounded_number_of_tenants() -> None:
    totals = TenantTotals("dhsched_example_total", "An example.")
    for n in range(TENANTS_MAX + 20):
        totals.add(f"t{n}", 2)
    totals.add("t0", 1)
    [family] = totals.collect()
    shown = {sample.labels["tenant"]: sample.value for sample in family.samples}
    assert len(shown) == TENANTS_MAX + 1
    assert (shown["t0"], shown["t1"], shown["*"]) == (3, 2, 40)
