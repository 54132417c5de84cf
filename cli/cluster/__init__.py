"""Commands that compute on a cluster: what the driver and its workers do."""
