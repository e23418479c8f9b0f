"""Cost: invariants about it that tests can break, and the benchmark against another engine.

`counting` counts instead of timing, and the tests beside it state what may be spent. `cases` are
timed by `timing`, by way of pytest-benchmark (`pytest properties/performance --benchmark-only`) or
alone (`python -m properties.performance`); `gpu` does all that one needs a GPU for.
"""
