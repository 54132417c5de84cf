"""The probe: a few calls that measure what an endpoint does with biases."""
