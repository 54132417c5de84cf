"""llama.cpp's real server, from the package xllamacpp, with the bundled model, as a process that can be killed.

python -m tests.recover.serving PORT SLOTS prints the address once the server is ready.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def start(port=0, slots=1):
    """Start a server; return the process and its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.recover.serving", str(port), str(slots)],
        cwd=ROOT,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    url = process.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:"), "the server did not start"
    return process, url


def stop(process):
    """Kill the server, as a crash would."""
    process.kill()
    process.wait()
    process.stdout.close()


def main():
    import xllamacpp
    from logitsmith.engine import locate

    port, slots = int(sys.argv[1]), int(sys.argv[2])
    params = xllamacpp.CommonParams()
    params.model.path = str(locate()[0])
    params.no_extra_bufts = True  # its kernels for AMX crash when some compilers made them
    params.n_ctx = 1024 * slots
    params.n_parallel = slots
    params.n_gpu_layers = 0
    params.warmup = False
    params.cpuparams.n_threads = 2
    params.port = port
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while os.getppid() != 1:  # it ends with the tests
        time.sleep(1)


if __name__ == "__main__":
    main()
