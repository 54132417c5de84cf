"""Command lines of llama.cpp: where they are found in a text, and what their words mean."""

import pytest
from logitsmith.presets.errors import PresetError
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


SETTINGS = {
    "no limit": ("-n -1", {"max_tokens": -1}),
    "a joined value": ("-n128 -s7", {"max_tokens": 128, "seed": 7}),
    "a quoted stop string": ("-r 'a b' -r \"c\\n\"", {"stop": ["a b", "c\n"]}),
    "a grammar over lines": ('--grammar \'root ::= "a"\n  | "b"\'', {"grammar": 'root ::= "a"\n  | "b"'}),
    "a budget": ("--reasoning-budget 100", {"phases": [{"max_tokens": 100, "adds_end": True}, {}]}),
    "no budget": ("--reasoning-budget -1", {}),
    "guidance": ("--cfg-scale 1.5 --cfg-negative-prompt x", {"guidance": {"scale": 1.5, "negative_prompt": "x"}}),
}


@pytest.mark.parametrize(("flags", "settings"), SETTINGS.values(), ids=SETTINGS)
def test_settings_of_a_command_line(flags, settings):
    imported = import_text(f"llama-cli {flags}", "stdin")
    assert imported.other_settings == settings
    assert imported.unsupported_settings == []


def test_flags_of_gen_run_are_named_to_type_them():
    imported = import_text("LLAMA_ARG_CTX_SIZE=8192 llama-server -ngl 99 --lora 'a b.gguf' --port 80", "stdin")
    assert any("--ctx-size 8192 -ngl 99 --lora 'a b.gguf'" in note for note in imported.notes)
    (sentence,) = imported.unsupported_settings
    assert sentence.startswith("--lora 'a b.gguf': ")


def test_the_first_of_several_is_read():
    imported = import_text("llama-cli --temp 0.6\n./main --temp 0.7\n", "stdin")
    assert ["temperature", {"t": 0.6}] in imported.chain
    assert "2 command lines" in imported.unsupported_settings[-1]


OTHERS = {
    "a Modelfile": ('FROM x\nSYSTEM """\nllama-server --temp 0.6\n"""\n', "ollama"),
    "an INI file": ("temp = 0.6\n[x]\nreverse-prompt = llama-cli --top-k 3\n", "llama.cpp"),
    "JSON": ('{"n_predict": 3, "stop": ["\\nllama-server --temp 0.6"]}', "llama.cpp"),
}


@pytest.mark.parametrize(("text", "form"), OTHERS.values(), ids=OTHERS)
def test_other_texts_that_mention_a_command(text, form):
    imported = import_text(text, "x", section="x" if "[x]" in text else None)
    assert imported.format == form
    assert ["top_k", {"k": 3}] not in imported.chain


def test_a_quote_that_is_not_closed():
    with pytest.raises(PresetError, match="quote"):
        import_text("llama-cli --temp 0.6 -r 'a", "stdin")


def test_ini_keys_of_drafts_and_reasoning():
    text = "[*]\ntemp = 0.6\nreasoning-budget = 100\nspec-draft-n-max = 5\n"
    text += "model-draft = x.gguf\nctx_size = 9\ntop_k = 20\n"
    imported = import_text(text, "x.ini")
    assert imported.other_settings["phases"] == [{"max_tokens": 100, "adds_end": True}, {}]
    assert ["top_k", {"k": 20}] in imported.chain
    assert not any("does not know" in sentence for sentence in imported.unsupported_settings)
    assert any("--spec-draft-n-max 5" in sentence for sentence in imported.unsupported_settings)
    assert any("--ctx-size 9" in note and "--model-draft x.gguf" in note for note in imported.notes)
