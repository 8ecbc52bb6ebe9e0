"""The paper's evaluation (paper, section 8), run on the product's own code: one file per figure or table.

`python -m evaluation NAME [--quick] [--seed N] [--json]`, or `make evaluate` for all of them.
"""
