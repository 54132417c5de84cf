"""The settings that the answers of a batch depend on, as they are recorded beside its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..presets.setting_table import RULE_NAMES
from .resolve import RequestResolver

if TYPE_CHECKING:
    from ..engine.model import Model
    from ..engine.request import BeamSearch
    from ..samplers.chain import StepSpec


@dataclass(frozen=True)
class ModelDescription:
    """The facts about a model that are needed before its requests are read."""

    name: str
    identity: Mapping[str, Any]  # the facts that the model's logits depend on, see `Model.identity`
    metadata: Mapping[str, str]  # metadata of the GGUF file


def describe_model(model: Model) -> ModelDescription:
    """Return the facts about a loaded model. Raises ``ModelError``."""
    return ModelDescription(model.name, model.identity(), model.metadata)


# keys of a model's identity that settings do not copy: the fingerprint has another key there, and the number of
# threads may differ between runs
_UNCOPIED_IDENTITY_KEYS = frozenset({"fingerprint", "threads"})


def batch_settings(
    model: ModelDescription, resolver: RequestResolver, base_seed: int, other_flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings that answers depend on, as JSON, under the names by which users set them."""
    defaults, settings = resolver.defaults, resolver.default_settings()
    grammar = resolver.grammar(settings)
    return {
        "name": model.name,
        "model": model.identity["fingerprint"],
        **{name: value for name, value in model.identity.items() if name not in _UNCOPIED_IDENTITY_KEYS},
        **_chain_settings(settings.steps),
        "seed": base_seed if settings["seed"].value is None else settings["seed"].value,
        **{name: settings[name].value for name in ("max_tokens", "stop", "system")},
        "grammar": None if grammar is None else grammar.description,
        **{name: value for name in RULE_NAMES if (value := settings[name].value) not in (None, [])},
        "chat": defaults.uses_chat_template,
        "chat_template": defaults.chat_template,
        "chat_template_kwargs": defaults.chat_template_kwargs,
        "logprobs": defaults.top_logprob_count,
        "trace": defaults.trace_top_count,
        **_beam_settings(defaults.beams),
        **other_flags,
    }


def _beam_settings(beams: BeamSearch | None) -> dict[str, Any]:
    """Return the settings of a beam search that flags set; empty without one."""
    settings = {} if beams is None else beams.as_setting()
    settings.pop("n_best", None)
    return settings


def _chain_settings(steps: Iterable[StepSpec]) -> dict[str, Any]:
    """Return the names of the steps that are not off, and their parameters as ``name.parameter``."""
    active_steps = [step for step in steps if not step.is_off]
    step_counts: Counter[str] = Counter()
    parameters = {}
    for step in active_steps:
        step_counts[step.name] += 1
        numbered_name = step.name if step_counts[step.name] == 1 else f"{step.name}#{step_counts[step.name]}"
        values = step.sampler.model_dump(mode="json")
        parameters.update({f"{numbered_name}.{key}": value for key, value in values.items()})
    return {"chain": [step.name for step in active_steps], **parameters}
