"""SillyTavern's own server, from npm, without a browser."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

IS_REQUIRED = bool(os.environ.get("REQUIRE_CLIENTS"))
"""Set where `make clients` must have been run, as by .ci/run; otherwise tests without the clients are skipped."""
PACKAGE = Path(sys.prefix, "clients", "node_modules", "sillytavern")
WITHOUT_WEBPACK = Path(__file__).parent / "data" / "without_webpack.mjs"


def skip_without(is_present, name):
    """Skip a test, or let it fail where the clients are required, if a client is not installed."""
    if not is_present:
        (pytest.fail if IS_REQUIRED else pytest.skip)(f"{name} is not installed: make clients")


class SillyTavern:
    """A running SillyTavern; a context manager that ends it.

    Args:
        folder: an empty folder for its data.
    """

    def __init__(self, folder):
        (folder / "config.yaml").write_text("skipContentCheck: true\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    *(shutil.which("node"), "--import", WITHOUT_WEBPACK.as_uri(), "server.js", "--disableCsrf"),
                    *("--configPath", folder / "config.yaml", "--dataRoot", folder / "data"),
                    *("--port", str(port), "--browserLaunchEnabled", "false"),
                ],
                cwd=PACKAGE,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        while "to open SillyTavern" not in self._log.read_text():
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.1)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()
        self._process.terminate()
        self._process.wait()

    def post(self, path, **body):
        """Send what the page sends. Returns the response."""
        response = self.http.post(f"/api/{path}", json=body)
        assert response.status_code == 200, self._log.read_text()[-2000:]
        return response
