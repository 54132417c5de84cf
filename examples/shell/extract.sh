#!/usr/bin/env bash
# Extract JSON from prose with a preset that has a JSON Schema, and print one field.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
gen "${1:-Ada Moreau, a 34 year old baker, lives in Lyon.}" -P "$here/../presets/extract.yaml" | jq -r .name
