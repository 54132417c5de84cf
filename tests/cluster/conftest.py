"""A Ray on this machine, where the package is installed."""

import os
from importlib.util import find_spec

import pytest

IS_REQUIRED = bool(os.environ.get("REQUIRE_RAY"))
"""Set where Ray was installed, as by .ci/run: then its absence is a failure."""


@pytest.fixture(scope="session")
def ray():
    if find_spec("ray") is None:
        (pytest.fail if IS_REQUIRED else pytest.skip)("there is no Ray to compute on: make ray")
    import ray

    return ray
