"""Comparison of sampling settings: the same prompts and seeds, with other chains or models."""
