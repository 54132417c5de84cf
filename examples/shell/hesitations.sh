#!/usr/bin/env bash
# Print the places where the model hesitates: the two most likely tokens are nearly equally likely.
set -euo pipefail
gen "${1:-The sea was}" -n "${2:-40}" --seed 7 --format jsonl --logprobs 2 |
    jq -r 'select(.event == "token" and (.top_logprobs[0].logprob - .top_logprobs[1].logprob < 0.2))
           | "\(.index)\t\([.top_logprobs[].token] | join(" |"))"'
