"""Invocations of `gen recover` and `gen recover-basis`: a model here, and the fake APIs of `api.py`."""

_HERE = "gen recover 'The sea was' -t 1"
_SERVER = "gen recover -p 'The sea was' --api llama-server --window 8 --endpoint"
_OPENAI = "gen recover -p 'The sea was' --api openai --api-model fake --tokenizer tokens.tiktoken --endpoint"
_KEY = "OPENAI_API_KEY=sk-recorded"
_PROMPTS = ("one", "two", "three", "four", "five", "six", "seven", "eight")

RECOVERIES = {
    # A model here
    "recover-top": f"{_HERE} --top 4",
    "recover-top-jsonl": f"{_HERE} --top 4 -o -",
    "recover-ids": f"{_HERE} --ids 253,17 --method single -o -",
    "recover-ids-parallel": f"{_HERE} --ids 253,17,441 --method parallel -o out.json",
    "recover-bisection": f"{_HERE} --ids 253,17 --method bisection --window 0 --eps 0.01",
    "recover-verify": f"{_HERE} --ids 253,17,441 --verify 2",
    "recover-dry-run": f"{_HERE} --dry-run --price 0.5,1.5",
    "recover-forced": f"{_HERE} --ids 253 --method forced",
    "recover-basis-here": f"""
        gen recover-basis -o basis.npz -t 1
        {_HERE} --basis basis.npz --method basis --top 3 --window 20
    """,
    # llama.cpp's server
    "recover-server": f"{_SERVER} $API/window -o -",
    "recover-server-table": f"{_SERVER} $API/window --top 6",
    "recover-server-single": f"{_SERVER} $API/window --method single --ids 1,2,3",
    "recover-server-parallel": f"{_SERVER} $API/window --method parallel -o out.npz",
    "recover-server-top": f"{_SERVER} $API/window --method top_n --top 12 -o out.jsonl --verify 3",
    "recover-server-bisection": f"{_SERVER} $API/window --method bisection --ids 5,6 -o -",
    "recover-server-window-0": f"{_SERVER} $API/window --window 0 --ids 3,4",
    "recover-server-raw": f"{_SERVER} $API/raw --pre-sampling -o -",
    "recover-server-forced": f"{_SERVER} $API/raw --pre-sampling --method forced --ids 7,8",
    "recover-server-forced-refused": f"{_SERVER} $API/window --method forced -o out.json",
    "recover-server-deaf": f"{_SERVER} $API/deaf -o out.json",
    "recover-server-repeats": f"{_SERVER} $API/window --repeats 2 --ids 1,2",
    "recover-server-in-flight": f"{_SERVER} $API/window --in-flight 2 --ids 1,2,3,4,5",
    "recover-server-plan": f"{_SERVER} $API/window --dry-run --price 0.5 --top 20",
    "recover-server-plan-one": f"{_SERVER} $API/window --dry-run --method parallel --vocab-size 100002",
    "recover-server-refused": f"{_SERVER} $API/refuse --retries 0",
    "recover-server-broken": f"{_SERVER} $API/broken --retries 0",
    "recover-server-other": f"{_SERVER} $API/other --retries 0",
    "recover-server-gone": f"{_SERVER} http://127.0.0.1:9 --retries 0",
    "recover-resume": f"""
        {_SERVER} $API/window -o out.json --max-calls 10
        {_SERVER} $API/window -o out.json
        {_SERVER} $API/window -o out.json -p other --resume
        {_SERVER} $API/window -o out.json --resume
    """,
    "recover-resume-none": f"{_SERVER} $API/window -o out.json --ids 1 --resume",
    "recover-max-calls": f"{_SERVER} $API/window --max-calls 5",
    "recover-torn-checkpoint": f"{_SERVER} $API/window -o out.json --checkpoint wrong/torn.json --resume",
    "recover-basis-vectors": "\n".join(
        [
            *(
                f"gen recover {prompt} --api llama-server --endpoint $API/window --window 8 -o {prompt}.npz"
                for prompt in _PROMPTS
            ),
            "gen recover-basis -o basis.npz " + " ".join(f"--vectors {prompt}.npz" for prompt in _PROMPTS),
            f"{_SERVER} $API/window --basis basis.npz -o -",
            f"{_SERVER} $API/window --basis basis.npz --method basis --dry-run",
        ]
    ),
    # OpenAI's API
    "recover-openai": f"{_KEY} {_OPENAI} $API/window/v1 -o -",
    "recover-openai-chat": f"{_KEY} {_OPENAI} $API/window/v1 --api-chat --top 8",
    "recover-openai-window-0": f"{_KEY} {_OPENAI} $API/window/v1 --window 0 --ids 1,2",
    "recover-openai-plan": f"{_OPENAI} $API/window/v1 --dry-run --price 1",
    "recover-openai-no-key": f"{_OPENAI} $API/window/v1 --ids 1",
    "recover-openai-key-env": f"MY_KEY=sk-other {_OPENAI} $API/window/v1 --ids 1 --key-env MY_KEY",
    "recover-openai-refused": f"{_KEY} {_OPENAI} $API/refuse/v1 --retries 0",
    # Refusals
    "recover-no-api": "gen recover x --endpoint $API/window",
    "recover-no-model": "gen recover x --endpoint $API/window --api openai",
    "recover-no-tokenizer": "gen recover x --endpoint $API/window --api openai --api-model m",
    "recover-wrong-tokenizer": (
        f"{_KEY} gen recover x --endpoint $API/window/v1 --api openai --api-model m --tokenizer wrong.tiktoken"
    ),
    "recover-two-sources": "gen recover x --endpoint $API/window --api llama-server -m text.gguf",
    "recover-remote-flag": "gen recover x --slot 1",
    "recover-top-and-ids": f"{_HERE} --top 3 --ids 1",
    "recover-top-n-bare": f"{_HERE} --method top_n",
    "recover-basis-bare": f"{_HERE} --method basis",
    "recover-bad-ids": f"{_HERE} --ids 1,x",
    "recover-bad-id": f"{_HERE} --ids 99999999",
    "recover-bad-price": f"{_HERE} --dry-run --price cheap",
    "recover-bad-eps": f"{_HERE} --eps 0",
    "recover-bad-method": f"{_HERE} --method guess",
    "recover-bad-output": f"{_HERE} --top 2 -o out.txt",
    "recover-no-folder": f"{_HERE} --top 2 -o missing/out.json",
    "recover-same-file": f"{_HERE} --top 2 -o out.json --checkpoint out.json",
    "recover-torn-basis": f"{_HERE} --basis torn.npz",
    "recover-basis-no-output": "gen recover-basis",
    "recover-basis-ending": "gen recover-basis -o basis.txt",
    "recover-basis-both": "gen recover-basis -o b.npz --rows 3 --vectors torn.npz",
    "recover-basis-torn": "gen recover-basis -o b.npz --vectors torn.npz --vectors torn.npz",
    "recover-basis-few": "gen recover-basis -o b.npz --vectors torn.npz",
    "recover-basis-missing": "gen recover-basis -o b.npz --vectors missing.npz --vectors torn.npz",
}
