"""A running `gen serve` with the bundled model, shared by the tests of a worker."""

import re
import subprocess
import sys
from contextlib import contextmanager

import httpx
import openai
import pytest

from .gen_serve import SECONDS_TO_WAIT, GenServe


@contextmanager
def serving(*flags, environment=None):
    """Run `gen serve` on a free port; yield its process and its address, once it takes requests."""
    words = [sys.executable, "-m", "logitsmith.cli", "serve", "--port", "0", "-t", "1", *flags]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"is served at (http://\S+);", line):
                    yield process, found[1]
                    break
            else:
                raise AssertionError("".join(lines))
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS_TO_WAIT)


@pytest.fixture(scope="session")
def server():
    """The address of a server with four slots."""
    with serving("--slots", "4", "-c", "1024", "--seed", "-1") as (_, address):
        yield address


@pytest.fixture(scope="session")
def http(server):
    with httpx.Client(base_url=server, timeout=SECONDS_TO_WAIT) as client:
        yield client


@pytest.fixture(scope="session")
def client(server):
    with openai.OpenAI(
        base_url=f"{server}/v1", api_key="nobody asks for it", timeout=SECONDS_TO_WAIT, max_retries=0
    ) as client:
        yield client


@pytest.fixture(scope="session")
def small_server(pruned_model):
    """A server of the pruned model with two slots, for requests whose answers do not matter."""
    with GenServe("--slots", "2", model=pruned_model) as server:
        yield server
