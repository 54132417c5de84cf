#!/usr/bin/env bash
# Print the most likely of several continuations, with its probability.
set -euo pipefail
prompt="${1:-The capital of France is}"
shift || true
[ $# -gt 0 ] || set -- " Paris" " London" " Rome"
choices=()
for choice in "$@"; do choices+=(--choices "$choice"); done
gen score "$prompt" "${choices[@]}" --format json |
    jq -r '.choices | max_by(.probability) | "\(.text)\t\(.probability * 100 | round) %"'
