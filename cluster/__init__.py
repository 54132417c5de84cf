"""Tasks on a cluster of Ray's: workers that may die, results that come once. Knows nothing of models."""
