#!/usr/bin/env bash
# Print the five most surprising tokens of a generated text, with their logprobs.
set -euo pipefail
gen "${1:-The sea was}" -n "${2:-40}" --seed 7 --format jsonl |
    jq -rs '[.[] | select(.event == "token")] | sort_by(.logprob) | .[:5][] | "\(.logprob * 100 | round / 100)\t\(.token)"'
