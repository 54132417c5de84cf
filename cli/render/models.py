"""The output of `gen models`: a table of models, and the facts about one model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.text import count_noun
from ..messages import flag_sentence
from ..text import file_size, output_width, parameter_count, print_wrapped, visible
from .table import Column, fact_lines, print_table

if TYPE_CHECKING:
    from ...models.facts import ModelFacts, ModelSummary

_LABEL_WIDTH = 13
# Metadata keys of the architecture's counts, and the nouns that are counted.
_COUNT_LABELS = (
    ("block_count", "layers"),
    ("embedding_length", "dimensions"),
    ("attention.head_count", "attention heads"),
    ("attention.head_count_kv", "heads of keys and values"),
    ("expert_count", "experts"),
    ("expert_used_count", "experts used for a token"),
)
# Metadata keys after ``general.``, and their labels.
_ORIGIN_LABELS = (
    ("organization", "made by"),
    ("author", "author"),
    ("finetune", "tuned for"),
    ("license", "license"),
    ("license.name", "license"),
    ("base_model.0.repo_url", "made from"),
    ("repo_url", "page"),
    ("url", "page"),
    ("quantized_by", "quantized by"),
    ("description", "description"),
)


def show_models(summaries: Iterable[ModelSummary]) -> None:
    """Print a table of models: name, size, quantization, parameters, trained context, chat template, origin."""
    rows = [
        (
            summary.entry.name,
            file_size(summary.size_bytes),
            _load_problem(summary) or summary.quantization,
            "" if summary.problem else parameter_count(summary.parameters),
            "" if summary.problem or summary.trained_context is None else f"{summary.trained_context:,}",
            "" if summary.problem else _yes_or_no(summary.has_chat_template),
            _short_path(summary.entry.source),
        )
        for summary in summaries
    ]
    origin = Column("from", is_optional=True)
    print_table(["model", "size", "type", "weights", "context", "chat", origin], rows)


def show_facts(summary: ModelSummary, facts: ModelFacts) -> None:
    print_wrapped(visible(summary.entry.name))
    model_name = facts.value("name")
    if model_name:
        _print_fact("name", model_name)
    _print_fact("file", str(summary.entry.path))
    if len(summary.entry.parts) > 1:
        _print_fact("", f"and {count_noun(len(summary.entry.parts) - 1, 'more part')}")
    for adapter in summary.entry.adapters:
        _print_fact("adapter", f"{adapter}{'' if adapter.is_file() else ' (missing)'}")
    if summary.entry.has_projector:
        _print_fact("images", "its projector is not used: gen reads text only")
    _print_fact("from", _short_path(summary.entry.source))
    bits = summary.size_bytes * 8 / summary.parameters if summary.parameters else 0
    _print_fact("size", f"{file_size(summary.size_bytes)}, {summary.quantization}, {bits:.3g} bits per weight")
    _print_fact("parameters", parameter_count(summary.parameters))
    _print_fact("architecture", ", ".join([summary.architecture, *_describe_counts(facts)]))
    if summary.trained_context is not None:
        _print_fact("context", f"trained with {summary.trained_context:,} tokens")
    tokenizer = facts.metadata.get("tokenizer.ggml.model", "unknown")
    _print_fact("vocabulary", f"{facts.vocabulary_size:,} tokens, {tokenizer}")
    _print_fact("chat template", _yes_or_no(summary.has_chat_template))
    for key, label in _ORIGIN_LABELS:
        value = facts.metadata.get(f"general.{key}")
        if value:
            _print_fact(label, value)
    if summary.problem:
        _print_fact("problem", _load_problem(summary))
    _show_tokens(facts)
    _show_settings(facts)


def _load_problem(summary: ModelSummary) -> str:
    """Return why a model cannot be loaded, with advice that names flags; empty if there is no known problem."""
    if summary.other_kind is not None:
        return flag_sentence(summary.other_kind)
    return summary.problem or ""


def _describe_counts(facts: ModelFacts) -> list[str]:
    values = [(facts.value(key), words) for key, words in _COUNT_LABELS]
    return [f"{int(value):,} {words}" for value, words in values if value.isdecimal()]


def _show_tokens(facts: ModelFacts) -> None:
    suppressed = facts.suppressed_tokens
    shown_tokens = [*facts.special_tokens, *suppressed[:_MAX_SUPPRESSED_TOKENS]]
    if not shown_tokens:
        return
    print("\nspecial tokens")
    rows = [(token.role, f"{token.id}", repr(token.text), token.purpose) for token in shown_tokens]
    if len(suppressed) > _MAX_SUPPRESSED_TOKENS:
        rows.append(("suppressed", "", "", f"and {len(suppressed) - _MAX_SUPPRESSED_TOKENS:,} more, never drawn"))
    print_table(["role", "id", "token", Column("what it does", is_text=True)], rows)


_MAX_SUPPRESSED_TOKENS = 8  # Number of suppressed tokens that are listed. Some models suppress a thousand.


def _show_settings(facts: ModelFacts) -> None:
    # the settings of the model's author, from the GGUF file and from Ollama
    if facts.sampling:
        settings = ", ".join(f"{name} {_short_number(value)}" for name, value in facts.sampling.items())
        print()
        print_wrapped(visible(f"the author's sampling settings: {settings}; use them with -P model"), 2)
    if facts.ollama_settings:
        settings = ", ".join(f"{name} {value}" for name, value in facts.ollama_settings.items())
        print()
        print_wrapped(visible(f"Ollama's settings for it: {settings}"), 2)
    if not facts.sampling and not facts.ollama_settings:
        print("\nthe author's sampling settings: none in the file")


def _short_number(text: str) -> str:
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _print_fact(label: str, fact: str) -> None:
    print("\n".join(fact_lines([(label, visible(fact))], _LABEL_WIDTH, output_width())))


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _short_path(text: str) -> str:
    """Return the path with ``~`` for the user's home folder. Other texts are returned unchanged."""
    home = str(Path.home())
    if not text.startswith(f"{home}/"):
        return text
    return f"~{text.removeprefix(home)}"
