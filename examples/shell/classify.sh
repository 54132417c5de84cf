#!/usr/bin/env bash
# Classify each row of a CSV file: one request per row, several of them concurrently. Prints id and answer.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
gen batch "${1:-$here/../data/reviews.csv}" --template 'Is this review positive or negative? "{text}" It is ' \
    --regex 'positive|negative' -P deterministic -c 512 --format jsonl |
    jq -r '[.id, .text] | @tsv' | sort
