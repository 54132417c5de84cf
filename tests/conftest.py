"""What every test folder shares: how hypothesis looks for examples."""

from hypothesis import HealthCheck, settings

# No deadline: a busy machine is no failure. The health check would count rows of thousands of logits as slow.
settings.register_profile(
    "logitsmith", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("logitsmith")
