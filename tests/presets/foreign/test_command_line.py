"""Command lines of llama.cpp: where they are found in a text."""

import pytest
from logitsmith.presets.foreign.formats import import_text

FOUND = {
    "a variable before it": "LLAMA_ARG_TOP_K=20 llama-server --temp 0.6",
    "a variable that no preset holds": "LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_TOP_K=20 llama-server --temp 0.6",
    "continued lines": "llama-server \\\n  -m /m/x.gguf \\\n  --temp 0.6 \\\n  --top-k 20\n",
    "continued lines with spaces and comments": "llama-server \\ \n  --temp 0.6 \\  # hot\n  # --top-k 10 \\\n"
    "  --top-k 20",
    "continued lines of CRLF": "llama-server \\\r\n  --temp 0.6 \\\r\n  --top-k 20\r\n",
    "lines that are not continued": "llama-cli --temp 0.6\n  --top-k 20\n",
    "the former name": "./main -m x.gguf --temp 0.6 --top-k 20 -p 'Hello'",
    "the former server": "./build/bin/server -m x.gguf --temp 0.6 --top-k 20",
    "a prompt of a shell": "$ llama-cli --temp 0.6 --top-k 20",
    "a prompt with a folder": "user@host:~/llama.cpp$ ./llama-cli --temp 0.6 --top-k 20",
    "docker run": "docker run --gpus all -v /m:/m -p 80:80 ghcr.io/ggml-org/llama.cpp:server-cuda -m /m/x.gguf"
    " --temp 0.6 --top-k 20",
    "docker run with a variable": "docker run -e LLAMA_ARG_TOP_K=20 ghcr.io/ggml-org/llama.cpp:server --temp 0.6",
    "docker run, the full image": "podman run ghcr.io/ggml-org/llama.cpp:full --run -m x --temp 0.6 --top-k 20",
    "docker run by sudo": "sudo docker run -e LLAMA_ARG_TOP_K=20 ghcr.io/ggml-org/llama.cpp:full --run --temp 0.6",
    "a shell in a container": "docker exec -it x bash -c 'llama-server --temp 0.6 --top-k 20'",
    "a shell with a variable before it": "LLAMA_ARG_TOP_K=20 sudo -E sh -c 'exec llama-server --temp 0.6'",
    "another machine": "ssh host 'cd /m; llama-server --temp 0.6 --top-k 20'",
    "a loop in one line": "while true; do llama-server --top-k 20 --temp 0.6; sleep 1; done",
    "a condition in one line": "if test -f x; then ./llama-server --temp 0.6 --top-k 20; fi",
    "a semicolon in quotes": "llama-cli -p 'a; b' --temp 0.6 --top-k 20",
    "other programs before it": "sudo -u x nohup numactl --interleave=all /opt/bin/llama-server --temp 0.6"
    " --top-k 20 > log.txt 2>&1 &",
    "env and time": "env A=b time -p llama-completion --temp 0.6 --top-k 20",
    "Windows": "C:\\llama\\llama-server.exe -m C:\\m\\x.gguf --temp 0.6 --top-k 20",
    "PowerShell": "PS C:\\Users\\x> .\\llama-server.exe `\n  -m C:\\m\\x.gguf `\n  --temp 0.6 `\n  --top-k 20",
    "a variable of PowerShell": '$env:LLAMA_ARG_TOP_K = "20"\n.\\llama-server.exe --temp 0.6',
    "Windows' cmd": "REM mine\nset LLAMA_ARG_TOP_K=20\nllama-server.exe ^\n  --temp 0.6\n",
    "after another command": "cd llama.cpp && ./build/bin/llama-server --temp 0.6 --top-k 20 | tee log",
    "comments": "# mine\n# second\n\nllama-server --temp 0.6 --top-k 20 # hot\n",
    "a script": '#!/bin/bash\nset -e\nexport LLAMA_ARG_TOP_K=20\nexec llama-server --temp 0.6 "$@"\n',
    "a service": "[Unit]\nDescription=x\n[Service]\nEnvironment=LLAMA_ARG_TOP_K=20\n"
    "ExecStart=/usr/bin/llama-server \\\n  --temp 0.6\nRestart=always\n",
    "a compose file": "services:\n  llama:\n    image: ghcr.io/ggml-org/llama.cpp:server\n"
    '    command: ["-m", "x", "--temp", "0.6"]\n    environment:\n      LLAMA_ARG_TOP_K: 20\n',
    "a compose file with text": "services:\n  llama:\n    image: ghcr.io/ggml-org/llama.cpp:server\n"
    "    command: >\n      -m x\n      --temp 0.6\n    environment:\n      - LLAMA_ARG_TOP_K=20\n",
    "a pod": "spec:\n  containers:\n  - name: x\n    image: ghcr.io/ggml-org/llama.cpp:server\n"
    '    args: ["--temp", "0.6"]\n    env:\n    - {name: LLAMA_ARG_TOP_K, value: "20"}\n',
    "llama-swap": "models:\n  x:\n    cmd: |\n      llama-server --port ${PORT}\n      --temp 0.6 --top-k 20\n",
    "the program llama": "llama serve --temp 0.6 --top-k 20",
    "llama-run": "llama-run --temp 0.6 --top-k 20 model 'Hello'",
    "a llamafile": "./x.llamafile --temp 0.6 --top-k 20",
    "flags alone": "--temp 0.6 --top-k 20",
    "Markdown": "```bash\nllama-server \\\n --temp 0.6 \\\n --top-k 20\n```\n",
    "an alias": "alias ll='llama-server --temp 0.6 --top-k 20'",
    "a shell in a shell": "bash -c 'llama-server --temp 0.6 --top-k 20'",
    "underscores": "llama-cli --temp 0.6 --top_k 20",
    "equals signs": "llama-cli --temp=0.6 --top_k=20",
    "the last of two": "llama-cli --top-k 3 --temp 9 --temp 0.6 --top_k 20",
    "negative values of others": "llama-cli -ngl -1 --temp 0.6 -ctk q8_0 --top-k 20 -c -1",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_command_line_is_found(text):
    imported = import_text(text, "stdin")
    steps = dict(imported.chain)
    assert imported.format == "llama.cpp"
    assert (steps["temperature"], steps["top_k"]) == ({"t": 0.6}, {"k": 20})
    assert imported.unsupported_settings == []
