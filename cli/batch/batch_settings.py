"""What the answers of a batch depend on beside its requests: the model, and what the flags set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...engine.model import Model
from ...samplers.chain import StepSpec
from .request_resolver import BatchDefaults, RequestResolver

_LEFT_OUT = frozenset({"fingerprint", "threads"})
"""Of a model's identity: what stands under another name, and what is left to each machine."""


@dataclass(frozen=True)
class ModelDescription:
    """What has to be known of a model before its requests are read.

    Attributes: ``name``; ``identity``: what its logits depend on; ``metadata``: of its file.
    """

    name: str
    identity: Mapping[str, Any]
    metadata: Mapping[str, str]


def describe_model(model: Model) -> ModelDescription:
    """Return what has to be known of a loaded model. Raises ``ModelError``."""
    return ModelDescription(model.name, model.identity(), model.metadata)


def batch_settings(
    model: ModelDescription, defaults: BatchDefaults, resolver: RequestResolver, form: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings as JSON, under the names by which a user sets them.

    Args:
        model: the model.
        defaults: what the flags set.
        resolver: resolves requests with them.
        form: the further flags that change results, such as their format.
    """
    settings = resolver.default_settings()
    grammar = resolver.grammar(settings)
    return {
        "name": model.name,
        "model": model.identity["fingerprint"],
        **{name: value for name, value in model.identity.items() if name not in _LEFT_OUT},
        **_chain(settings.steps),
        "seed": defaults.base_seed if settings.seed.value is None else settings.seed.value,
        **{name: getattr(settings, name).value for name in ("max_tokens", "stop", "system")},
        "grammar": None if grammar is None else grammar.description,
        "chat": defaults.chat,
        "chat_template": defaults.chat_template,
        "chat_template_kwargs": defaults.chat_template_kwargs,
        "logprobs": defaults.logprobs,
        "trace": defaults.trace,
        **form,
    }


def _chain(steps: Iterable[StepSpec]) -> dict[str, Any]:
    """The names of the steps that do something, and their parameters as ``name.parameter``."""
    acting = [step for step in steps if not step.is_off]
    counts: Counter[str] = Counter()
    parameters = {}
    for step in acting:
        counts[step.name] += 1
        name = step.name if counts[step.name] == 1 else f"{step.name}#{counts[step.name]}"
        parameters.update({f"{name}.{key}": value for key, value in step.sampler.model_dump(mode="json").items()})
    return {"chain": [step.name for step in acting], **parameters}
