"""Ray on this machine, if the package is installed."""

import os
from importlib.util import find_spec

import pytest

IS_REQUIRED = bool(os.environ.get("REQUIRE_RAY"))
"""Set where Ray must be installed, as by .ci/run; otherwise tests without Ray are skipped."""


@pytest.fixture(scope="session")
def ray():
    if find_spec("ray") is None:
        (pytest.fail if IS_REQUIRED else pytest.skip)("Ray is not installed: make ray")
    import ray

    return ray
