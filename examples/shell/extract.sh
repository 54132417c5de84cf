#!/usr/bin/env bash
# JSON out of prose, then one field of it: a preset with a JSON Schema does the work.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
gen "${1:-Ada Moreau, a 34 year old baker, lives in Lyon.}" -P "$here/../presets/extract.yaml" | jq -r .name
