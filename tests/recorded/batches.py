"""Invocations of `gen batch`; one request at a time where logprobs are shown, since batches round otherwise."""

_REVIEWS = "gen batch reviews.csv -t 1 --template "

BATCHES = {
    "batch-jsonl": "gen batch requests.jsonl --format jsonl -t 1 -np 1 -n 4",
    "batch-openai-of-short": "gen batch requests.jsonl -t 1 -np 1 -n 4",
    "batch-openai": "gen batch openai.jsonl -t 1 -np 1",
    "batch-openai-as-jsonl": "gen batch openai.jsonl -t 1 -np 1 --format jsonl",
    "batch-stdin": "gen batch - --format jsonl -t 1 -np 1 -n 3 < requests.jsonl",
    "batch-parallel": _REVIEWS + "'Review: {text} Mood:' --format jsonl -np 3 -n 4",
    "batch-deterministic": "gen batch requests.jsonl --format jsonl -t 1 -np 4 --deterministic -n 3 --logprobs 1",
    "batch-logprobs": "gen batch requests.jsonl --format jsonl -t 1 -np 1 -n 2 --logprobs 2",
    "batch-logprobs-openai": "gen batch openai.jsonl -t 1 -np 1 -n 2 --logprobs 2",
    "batch-file": "gen batch requests.jsonl --format jsonl -t 1 -np 1 -n 3 -o results.jsonl",
    "batch-file-there": "gen batch requests.jsonl --format jsonl -t 1 -np 1 -o torn-results.jsonl",
    "batch-resume": "gen batch requests.jsonl --format jsonl -t 1 -np 1 -n 3 -o torn-results.jsonl --resume",
    "batch-resume-twice": """
        gen batch wrong/requests.jsonl -t 1 -np 1 -n 2 -o results.jsonl
        gen batch wrong/requests.jsonl -t 1 -np 1 -n 2 -o results.jsonl --resume
        gen batch requests.jsonl -t 1 -np 1 -n 2 -o results.jsonl --resume
    """,
    "batch-resume-other-format": "gen batch requests.jsonl -t 1 -o torn-results.jsonl --resume",
    "batch-resume-no-results": "gen batch requests.jsonl --format jsonl -t 1 -o wrong/results.jsonl --resume",
    "batch-csv": _REVIEWS + "'Review: {text} Mood:' -np 1 --format jsonl --temp 0 -n 2",
    "batch-csv-seed": _REVIEWS + "'{id}: {text}' -np 1 --format jsonl --seed 5 -n 2",
    "batch-csv-wrong": "gen batch wrong/reviews.csv --template '{text}' -t 1 -np 1 --format jsonl -n 2",
    "batch-csv-column": _REVIEWS + "'{txt}'",
    "batch-csv-template": _REVIEWS + "'no {column'",
    "batch-csv-no-template": "gen batch reviews.csv -t 1",
    "batch-grammar": _REVIEWS + "'{text} Good? ' --grammar yes_no -np 1 --format jsonl --temp 0",
    "batch-chat": _REVIEWS + "'{text}' --chat --system 'One word.' -np 1 --format jsonl -n 2",
    "batch-flags": _REVIEWS + "'{text}' -P creative --chain 'top-k2 > dist' --set top_k.k=1 -n 2",
    "batch-preset": _REVIEWS + "'{text}' -P storyteller.yaml --top-k 4 -np 1 --format jsonl -n 3",
    "batch-wrong": "gen batch wrong/requests.jsonl --format jsonl -t 1 -np 1 -n 2",
    "batch-wrong-openai": "gen batch wrong/openai.jsonl -t 1 -np 1 -n 2",
    "batch-latin1": "gen batch wrong/latin1.jsonl --format jsonl -t 1 -np 1 -n 2",
    "batch-empty": "gen batch empty.txt -t 1",
    "batch-missing": "gen batch missing.jsonl -t 1",
    "batch-context": "gen batch requests.jsonl --format jsonl -t 1 -np 1 -c 8 -n 4",
    "batch-resume-stdout": "gen batch requests.jsonl --resume",
    "batch-over-requests": "gen batch requests.jsonl -o requests.jsonl",
    "batch-parallel-zero": "gen batch requests.jsonl -np 0",
    "batch-seed": "gen batch requests.jsonl --seed -2",
    "batch-tokens": "gen batch requests.jsonl -n 0",
    "batch-logprobs-all": "gen batch requests.jsonl --logprobs -1",
    "batch-system": "gen batch requests.jsonl --no-chat --system x",
    "batch-bad-grammar": "gen batch requests.jsonl --grammar-file wrong/unclosed.gbnf",
    "batch-no-argument": "gen batch",
}
