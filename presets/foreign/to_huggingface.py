"""A preset as Hugging Face's ``generation_config.json``.

The order is fixed. A greedy end leaves only the penalties.
"""

from __future__ import annotations

import json
from typing import Any

from .huggingface import SAMPLING_SLOTS, SLOTS_BEFORE
from .outgoing import Exported, Outgoing, StepKeys

_KEYS = {
    "logit_bias": StepKeys("logit_bias", {"bias": "sequence_bias"}),
    "encoder_repetition_penalty": StepKeys(
        "encoder_repetition_penalty", {"penalty": "encoder_repetition_penalty"}
    ),
    "penalties": StepKeys("repetition_penalty", {"repeat": "repetition_penalty"}, {"last_n": -1}),
    "no_repeat_ngram": StepKeys("no_repeat_ngram_size", {"n": "no_repeat_ngram_size"}),
    "ban": StepKeys("bad_words_ids", {"tokens": "bad_words_ids"}),
    "min_tokens": StepKeys("min_new_tokens", {"n": "min_new_tokens"}),
    "temperature": StepKeys("temperature", {"t": "temperature"}),
    "top_h": StepKeys("top_h", {"h": "top_h"}),
    "top_k": StepKeys("top_k", {"k": "top_k"}),
    "top_p": StepKeys("top_p", {"p": "top_p"}),
    "min_p": StepKeys("min_p", {"p": "min_p"}),
    "typical": StepKeys("typical_p", {"p": "typical_p"}),
    "epsilon_cutoff": StepKeys("epsilon_cutoff", {"epsilon": "epsilon_cutoff"}),
    "eta_cutoff": StepKeys("eta_cutoff", {"epsilon": "eta_cutoff"}),
}


def to_config(out: Outgoing) -> Exported:
    """Return the JSON; biases and bans of texts are reported, since the file holds token ids."""
    name = out.selector_name
    if name == "greedy":
        for step in [step for step in out.steps if _KEYS.get(step.about.name, _NONE).slot in SAMPLING_SLOTS]:
            out.steps.remove(step)
            out.report(step.about.name, "without do_sample, transformers applies the penalties only")
    elif name != "dist":
        out.report(name, "transformers does not draw so; a plain draw was written")
    out.say_steps(_KEYS)
    out.report_order([*SLOTS_BEFORE, *SAMPLING_SLOTS])
    values: dict[str, Any] = {"do_sample": name != "greedy"}
    if name != "greedy":
        values["top_k"] = 0  # 50 where it is absent
    values |= out.values
    if "sequence_bias" in values:
        values["sequence_bias"] = [
            [[token], number] for token, number in out.finite_biases(values["sequence_bias"]).items()
        ]
    if "bad_words_ids" in values:
        texts = [token for token in values["bad_words_ids"] if isinstance(token, str)]
        for text in texts:
            out.report(f"ban.tokens {text!r}", "transformers' file holds token ids only")
        values["bad_words_ids"] = [[token] for token in values["bad_words_ids"] if token not in texts]
    out.values = {}
    out.take_extras({"max_tokens": "max_new_tokens", "stop": "stop_strings"})
    return out.exported(json.dumps({**values, **out.values}, indent=2, ensure_ascii=False) + "\n")


_NONE = StepKeys("", {})
