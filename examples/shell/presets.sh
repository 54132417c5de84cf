#!/usr/bin/env bash
# The same prompt and seed through several presets.
set -euo pipefail
for preset in default creative precise xtc-dry; do
    printf '%s:' "$preset"
    gen "${1:-The sea was}" -P "$preset" -n "${2:-16}" --seed 7 --stop $'\n'
    echo
done
