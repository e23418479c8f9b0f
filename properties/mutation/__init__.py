"""Mutants of `impl`: small changes that a machine makes, to count how many of them are noticed.

`operators` says which changes, `mutants` where, `trial` what is tried against each.
"""
