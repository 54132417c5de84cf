"""A running `gen serve` with the pruned model, shared by the tests of a worker, and `gen` with the same model."""

import os
from pathlib import Path

import httpx
import openai
import pytest

from .gen_serve import SECONDS_TO_WAIT, GenServe
from .page_driver import PageDriver


@pytest.fixture(scope="session")
def server(pruned_model):
    """A server with four slots."""
    with GenServe("--slots", "4", "-c", "4096", "--seed", "-1", model=pruned_model) as server:
        yield server


PAGE = "http://localhost:3000"


@pytest.fixture(scope="session")
def locked(pruned_model, tmp_path_factory):
    """A server with keys, for all addresses, which pages of one origin may use."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("\ufefffirst-key\n\n  second-key \n")
    flags = ("--host", "0.0.0.0", "--api-key-file", str(keys), "--cors", PAGE, "--cors", "null")
    with GenServe(*flags, "--allow-host", "Gen.Example.org", "--slots", "2", model=pruned_model) as server:
        yield server


@pytest.fixture(scope="session")
def http(server):
    with httpx.Client(base_url=server.address, timeout=SECONDS_TO_WAIT) as client:
        yield client


@pytest.fixture(scope="session")
def client(server):
    with openai.OpenAI(
        base_url=f"{server.address}/v1", api_key="nobody asks for it", timeout=SECONDS_TO_WAIT, max_retries=0
    ) as client:
        yield client


@pytest.fixture(scope="session")
def gen(gen_server, pruned_model):
    """Run a command with the model of the server. Returns what it prints."""
    environment = {**os.environ, "GEN_MODEL": str(pruned_model), "NO_COLOR": "1"}

    def run(command, *words, stdin=""):
        out, err, code = gen_server.run(
            [command, "-t", "1", *map(str, words)],
            stdin=stdin.encode(),
            cwd=Path.cwd(),
            env=environment,
            timeout=SECONDS_TO_WAIT,
        )
        assert code == 0, err.decode()
        return out.decode()

    return run


WINDOW = {"viewport": {"width": 1440, "height": 900}, "accept_downloads": True}


@pytest.fixture
def context(browser):
    """A window of the browser with stores of its own."""
    with browser.new_context(**WINDOW) as context:
        yield context


@pytest.fixture(scope="session")
def shared_context(browser):
    """A window for all tests: each tab has its own state, and loads the page from the cache."""
    with browser.new_context(**WINDOW) as context:
        yield context


@pytest.fixture
def page(shared_context, server):
    """A page without errors and without requests to other hosts."""
    driver = PageDriver(shared_context, server.address)
    yield driver
    driver.tab.close()
    assert driver.errors == []
    assert driver.hosts <= {server.address.split("/")[2], ""}
