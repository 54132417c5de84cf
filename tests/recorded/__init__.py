"""A fixed list of invocations of `gen`, whose outputs `tests/record_outputs.py` records and compares."""
