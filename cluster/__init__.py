"""Tasks on a Ray cluster: each task gets one result even if workers are lost. The tasks need not use a model."""
