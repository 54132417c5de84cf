"""Tasks on a Ray cluster, each of which gets one result even if workers are lost. Knows nothing about models."""
