"""The settings that the answers of a batch depend on, as they are recorded beside its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..presets.setting_table import NAMES_SHOWN_IF_SET
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


# Keys of a model's identity that settings do not copy. The fingerprint has the key ``model`` there. The number of
# threads may differ between runs with the same answers.
_UNCOPIED_IDENTITY_KEYS = frozenset({"fingerprint", "threads"})


def model_settings(model: ModelDescription) -> dict[str, Any]:
    """Return what the logits of a model depend on, and its name."""
    identity = {name: value for name, value in model.identity.items() if name not in _UNCOPIED_IDENTITY_KEYS}
    return {"name": model.name, "model": model.identity["fingerprint"], **identity}


def batch_settings(
    model: ModelDescription, resolver: RequestResolver, base_seed: int, other_flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings that answers depend on, as JSON, under the names by which users set them."""
    defaults = resolver.defaults
    settings = resolver.default_settings()
    seed = settings["seed"].value
    grammar = resolver.grammar(settings)
    rules = {name: settings[name].value for name in NAMES_SHOWN_IF_SET}
    given_rules = {name: value for name, value in rules.items() if value not in (None, [])}
    return {
        **model_settings(model),
        **_chain_settings(settings.steps),
        "seed": base_seed if seed is None else seed,
        "max_tokens": settings["max_tokens"].value,
        "stop": settings["stop"].value,
        "system": settings["system"].value,
        "grammar": None if grammar is None else grammar.description,
        **given_rules,
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
        number = step_counts[step.name]
        numbered_name = step.name if number == 1 else f"{step.name}#{number}"
        for parameter, value in step.sampler.model_dump(mode="json").items():
            parameters[f"{numbered_name}.{parameter}"] = value
    return {"chain": [step.name for step in active_steps], **parameters}
