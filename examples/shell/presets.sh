#!/usr/bin/env bash
# Continue one prompt with several presets and the same seed.
set -euo pipefail
for preset in default creative precise xtc-dry; do
    printf '%s:' "$preset"
    gen "${1:-The sea was}" -P "$preset" -n "${2:-16}" --seed 7 --stop $'\n'
    echo
done
