"""The bodies of SillyTavern for each type of program, with the sliders at their defaults and each slider moved.

`data/sillytavern_bodies.json` was made by the page's own code: `python -m tests.serve.sillytavern_bodies` makes it
anew where `make clients` has installed SillyTavern.
"""

import json
import shutil
import subprocess
from pathlib import Path

from .sillytavern import PACKAGE

DATA = Path(__file__).parent / "data"
FILE = DATA / "sillytavern_bodies.json"
TYPES = (
    *("ooba", "mancer", "vllm", "aphrodite", "tabby", "koboldcpp", "togetherai", "llamacpp", "ollama"),
    *("infermaticai", "dreamgen", "openrouter", "featherless", "huggingface", "generic"),
)
SEED = {"seed": 11}
"""A seed for all bodies: some types get a random one otherwise."""
DRY = {"dry_multiplier": 0.8}
DYNATEMP = {"dynatemp": True, "min_temp": 0.5, "max_temp": 1.5}
MIROSTAT = {"mirostat_mode": 2}
MOVED = {
    "temperature": {"temp": 1.5},
    "temperature 0": {"temp": 0},
    "temperature first": {"temperature_last": False},
    "top_p": {"top_p": 0.9},
    "top_p off": {"top_p": 1},
    "top_k": {"top_k": 7},
    "top_k off": {"top_k": 0},
    "top_a": {"top_a": 0.2},
    "tfs": {"tfs": 0.9},
    "epsilon_cutoff": {"epsilon_cutoff": 3},
    "eta_cutoff": {"eta_cutoff": 6},
    "typical_p": {"typical_p": 0.8},
    "min_p": {"min_p": 0.1},
    "rep_pen off": {"rep_pen": 1},
    "rep_pen_range": {"rep_pen_range": 600},
    "rep_pen_slope": {"rep_pen_range": 600, "rep_pen_slope": 0.7},
    "rep_pen_decay": {"rep_pen_decay": 5},
    "freq_pen": {"freq_pen": 0.3},
    "presence_pen": {"presence_pen": 0.4, "rep_pen_range": 600},
    "encoder_rep_pen": {"encoder_rep_pen": 1.1},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 3},
    "skew": {"skew": 0.5},
    "nsigma": {"nsigma": 1.5},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.2},
    "dynatemp": DYNATEMP,
    "dynatemp with an exponent": {**DYNATEMP, "dynatemp_exponent": 2},
    "smoothing": {"smoothing_factor": 0.3, "smoothing_curve": 2},
    "dry": DRY,
    "dry with a range": {**DRY, "dry_penalty_last_n": 512, "dry_base": 2, "dry_allowed_length": 3},
    "dry with breakers": {**DRY, "dry_sequence_breakers": '["\\n", "#", ", "]'},
    "mirostat": MIROSTAT,
    "mirostat 1": {"mirostat_mode": 1, "mirostat_tau": 3},
    "mirostat with penalties": {**MIROSTAT, "rep_pen_range": 600, "presence_pen": 0.2, "mirostat_eta": 0.2},
    "adaptive": {"adaptive_target": 0.4, "adaptive_decay": 0.8},
    "min_keep": {"min_keep": 3},
    "no sampling": {"do_sample": False},
}
"""For each moved slider: the settings of the page."""


def make_bodies(requests):
    """Return the bodies for types and settings, as the page's code makes them."""
    done = subprocess.run(
        [shutil.which("node"), DATA / "textgen_bodies.mjs", PACKAGE],
        input=json.dumps([{"type": kind, "settings": SEED | settings} for kind, settings in requests]),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def make_all():
    """Return what the file holds: for each type, the usual body, and what each moved slider changes."""
    requests = [(kind, settings) for kind in TYPES for settings in ({}, *MOVED.values())]
    made = iter(make_bodies(requests))
    found = {}
    for kind in TYPES:
        usual = next(made)
        changes = {name: changed_fields(usual, next(made)) for name in MOVED}
        found[kind] = {"usual": usual, "moved": {name: change for name, change in changes.items() if change}}
    return found


def changed_fields(usual, body):
    """Return the fields of a body that differ; null for one that it lacks."""
    return {name: body.get(name) for name in {**usual, **body} if body.get(name) != usual.get(name)}


def recorded_bodies():
    """Return the bodies of the file, by type and slider."""
    return {
        (kind, name): {key: value for key, value in {**entry["usual"], **change}.items() if value is not None}
        for kind, entry in json.loads(FILE.read_text()).items()
        for name, change in {"usual": {}, **entry["moved"]}.items()
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(make_all(), indent=1) + "\n")
