#!/usr/bin/env bash
# A CSV file in, id and answer out: one request a row, answered several at a time.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
gen batch "${1:-$here/../data/reviews.csv}" --template 'Is this review positive or negative? "{text}" It is ' \
    --regex 'positive|negative' -P deterministic -c 512 --format jsonl |
    jq -r '[.id, .text] | @tsv' | sort
