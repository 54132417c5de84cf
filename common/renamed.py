"""Public names of version 0.1 that have a new name: the old one works for one release, and warns.

`RENAMED` lists them all. A module or package finds its old names with `find_by_old_name`. A class, function or
method is decorated with `supports_old_names`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

RENAMED: Mapping[str, Mapping[str, str]] = {
    "logitsmith.grammars.constraint": {
        "Guide": "ForcingConstraint",
        "Closable": "CompletableConstraint",
        "as_guide": "as_forcing",
        "as_closable": "as_completable",
    },
    "logitsmith.grammars.constraint.ForcingConstraint": {"forced": "forced_tokens"},
    "logitsmith.grammars.constraint.CompletableConstraint": {"closing": "completion_tokens"},
    "logitsmith.grammars.constraint.BackgroundConstraint": {
        "forced": "forced_tokens",
        "closing": "completion_tokens",
    },
    "logitsmith.grammars.grammar.Grammar": {
        "outer_blanks": "ignored_outer_whitespace",
        "over_bytes": "byte_grammar",
        "for_texts": "text_matching_grammar",
        "names_tokens": "has_token_references",
    },
    "logitsmith.grammars.grammar.GrammarState": {
        "follow": "accept_prefix",
        "take_back": "roll_back",
        "closing": "completion_tokens",
        "forced": "forced_tokens",
    },
    "logitsmith.grammars.grammar.ParsedGrammar": {
        "names_tokens": "has_token_references",
        "left_out": "ignored_schema_paths",
    },
    "logitsmith.grammars.spec.GrammarSpec": {
        "names_tokens": "has_token_references",
        "left_out": "ignored_schema_paths",
    },
    "logitsmith.grammars.spec.TriggeredConstraint": {"forced": "forced_tokens", "closing": "completion_tokens"},
    "logitsmith.logprobs.events.BatchExactness": {
        "largest_difference": "max_logit_difference",
        "alone_tokens": "max_exact_tokens",
        "of_text": "for_answer",
    },
    "logitsmith.logprobs.events.BatchExactness.for_answer": {"tokens": "token_count"},
    "logitsmith.logprobs.events.PromptToken": {"special": "is_control"},
    "logitsmith.logprobs.events.Token": {"special": "is_control"},
    "logitsmith.logprobs.records.TokenRecord": {"special": "is_control"},
    "logitsmith.logprobs.recorded.read_stream": {"wrong": "on_error"},
    "logitsmith.logprobs.recorded.RecordedTrace": {
        "fallen_likeliest": "dropped_top_candidate",
        "likeliest": "top_candidate",
    },
    "logitsmith.engine.batch.BatchEngine.__init__": {"isolated": "deterministic"},
    "logitsmith.engine.batch.generate_many": {"isolated": "deterministic"},
    "logitsmith.engine.context.Context": {
        "push": "append",
        "push_all": "append_batch",
        "push_each": "append_in_small_batches",
        "why_it_cannot_shift": "shift_unsupported_reason",
    },
    "logitsmith.engine.model.Model.batch_exactness": {"isolated": "deterministic"},
    "logitsmith.engine.model.Model.from_plan": {"early": "background_load"},
    "logitsmith.engine.model.Model.make_slots": {"isolated": "deterministic"},
    "logitsmith.engine.next_token.NextToken": {"forced": "forced_token"},
    "logitsmith.engine.native.options.ComputeOptions": {"apply": "apply_to"},
    "logitsmith.engine.templates.ReasoningTags": {"answer_marks": "answer_prefixes"},
    "logitsmith.engine.vocabulary.Vocabulary.added_bytes": {"previous": "previous_token"},
    "logitsmith.recover": {"EndpointAnswer": "EndpointResponse", "QuestionKind": "QueryKind"},
    "logitsmith.recover.basis.Basis": {"order": "determining_tokens", "pieces": "token_bytes"},
    "logitsmith.recover.basis.Basis.of_matrix": {"pieces": "token_bytes"},
    "logitsmith.recover.basis.Basis.of_rows": {"pieces": "token_bytes"},
    "logitsmith.recover.basis.basis_from_rows": {"count": "row_count"},
    "logitsmith.recover.cost.CallEstimate": {"about": "is_approximate", "billed": "billed_token_count"},
    "logitsmith.recover.cost.estimate_calls": {"n": "top_count"},
    "logitsmith.recover.endpoints.base.Endpoint": {
        "collisions": "unnameable_ids",
        "has_likeliest": "has_top_token_query",
        "likeliest": "query_top_token",
        "look_alikes": "ids_that_need_bytes",
        "pieces": "token_bytes",
    },
    "logitsmith.recover.endpoints.base.EndpointLimits": {
        "lowest": "min_reliable_logprob",
        "max_bias": "max_bias_nats",
        "most_biases": "max_biases_per_call",
        "precision": "relative_error",
    },
    "logitsmith.recover.endpoints.base.EndpointResponse": {
        "pieces": "token_bytes",
        "unnamed": "unmatched_logprobs",
    },
    "logitsmith.recover.endpoints.base.QueryKind": {"LIKELIEST_TOKEN": "TOP_TOKEN"},
    "logitsmith.recover.endpoints.http.HttpOptions": {
        "backoff": "first_retry_wait_seconds",
        "longest": "max_retry_wait_seconds",
        "rate": "max_calls_per_second",
        "retries": "max_retries",
        "timeout": "timeout_seconds",
        "waits_for_server": "should_wait_for_server",
    },
    "logitsmith.recover.endpoints.http.Retry": {
        "attempt": "attempt_number",
        "attempts": "max_attempts",
        "seconds": "wait_seconds",
    },
    "logitsmith.recover.endpoints.openai.OpenAIEndpoint": {
        "chat": "uses_chat_completions",
        "pieces": "token_bytes",
    },
    "logitsmith.recover.endpoints.openai.TokenTextTable": {
        "ambiguous": "ambiguous_ids",
        "look_alikes": "ids_that_need_bytes",
        "of_entry": "find_entry_id",
        "of_text": "find_text_id",
        "pieces": "token_bytes",
        "without_bytes": "ids_without_bytes",
    },
    "logitsmith.recover.errors.RecoverError": {"is_absent": "is_unreachable", "kept": "has_checkpoint"},
    "logitsmith.recover.recovery.recover": {"n": "top_count"},
    "logitsmith.recover.request.RecoverySettings": {
        "eps": "bisection_error_nats",
        "in_flight": "max_concurrent_calls",
        "interrupted": "is_interrupted",
        "repeats": "calls_per_query",
        "tolerance": "max_held_out_error_nats",
    },
    "logitsmith.recover.results.Recovery": {
        "complete": "is_complete",
        "error": "max_error_nats",
        "normalised": "is_normalized",
        "pieces": "token_bytes",
        "queries": "total_calls",
        "sent": "new_calls",
        "stopped": "stop_reason",
    },
    "logitsmith.recover.results.save_recovery": {"about": "run_info"},
    "logitsmith.recover.verification.Verification": {
        "largest": "max_difference_nats",
        "queries": "total_calls",
        "stopped": "stop_reason",
        "token": "worst_token",
        "tokens": "compared_token_count",
    },
    "logitsmith.recover.verification.verify": {"count": "token_count"},
    "logitsmith.samplers": {"About": "SamplerInfo", "LeadingRows": "TopRows"},
    "logitsmith.samplers.base": {"About": "SamplerInfo"},
    "logitsmith.samplers.base.SamplerInfo": {
        "main": "main_parameter",
        "neutral": "off_values",
        "idle": "inactive_while_off",
        "selects": "is_selector",
        "keeps_likeliest": "keeps_top_token",
        "stands_for": "covered_samplers",
        "takes_likeliest": "is_greedy",
        "merged": "mergeable_parameters",
    },
    "logitsmith.samplers.candidates.Candidates": {
        "only": "replace_with_single_row",
        "take": "select_rows",
        "keep": "filter_rows",
        "change": "set_logits_at",
        "replace": "set_logits",
        "top": "keep_top_rows",
        "order": "sort_descending",
        "where": "positions_where",
        "best": "top_position",
        "leading": "top_rows",
        "vocabulary": "vocab_size",
        "allowed": "grammar_mask",
        "is_whole": "is_full_vocabulary",
    },
    "logitsmith.samplers.candidates.Candidates.llama_cpp_probs_down_to": {"least": "min_prob"},
    "logitsmith.samplers.chain.Chain.with_steps": {"before": "applying_steps"},
    "logitsmith.models.facts.ModelFacts": {"tool_settings": "ollama_settings"},
    "logitsmith.models.facts.read_facts": {"settings": "ollama_settings_file"},
    "logitsmith.models.listing.ModelEntry": {"settings": "ollama_settings_file"},
    "logitsmith.models.listing.list_models": {
        "has_all_names": "includes_all_names",
        "has_missing": "includes_missing",
    },
    "logitsmith.models.resolve.ModelNotHereError": {"missing": "missing_part"},
    "logitsmith.presets": {"Exported": "ExportedPreset", "Imported": "ImportedPreset"},
    "logitsmith.presets.foreign.exporter.ExportedPreset": {"reported": "unsupported_settings"},
    "logitsmith.presets.foreign.conversion.ImportedPreset": {
        "extras": "other_settings",
        "reported": "unsupported_settings",
        "changed": "changed_settings",
    },
    "logitsmith.presets.foreign.formats.LoadedPreset": {"reported": "unsupported_settings"},
    "logitsmith.presets.preset.Preset": {"needed": "allowed_values"},
    "logitsmith.presets.search.PresetEntry": {"shadowed": "is_shadowed"},
    "logitsmith.presets.settings.Settings": {"grammar_base": "grammar_folder", "ignored": "ignored_flags"},
    "logitsmith.presets.settings.resolve_settings": {"arrangements": "rearrangements"},
}
"""The old names of each package, class, function or method, and the new name of each old one.

The keys are full names, such as ``logitsmith.engine.batch.generate_many``.
"""

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def supports_old_names(decorated: _Decorated) -> _Decorated:
    """Make a class, function or method accept the old names that `RENAMED` lists for it.

    In a class, old names of attributes, methods and arguments of the constructor work. ``dataclasses.replace``
    accepts old names, too. A subclass, or another base class of the subclass, may define an attribute or a method
    by its old name. In a function or method, old names of arguments work. Each use warns with a
    `DeprecationWarning` that contains the new name.

    Two uses of an old name have no effect, and do not warn. One is an attribute that is assigned to a subclass
    after the class body, as in ``Subclass.old_name = value``. The other is an argument of a constructor that a
    subclass defines, or that ``@dataclass`` creates for the subclass.
    """
    full_name = f"{decorated.__module__}.{decorated.__qualname__}"
    new_names = RENAMED[full_name]
    if not isinstance(decorated, type):
        return _with_old_arguments(decorated, decorated.__qualname__, new_names)
    for old_name, new_name in new_names.items():
        setattr(decorated, old_name, _OldAttribute(decorated.__qualname__, old_name, new_name))
    constructor_name = "__new__" if issubclass(decorated, tuple) else "__init__"
    constructor = getattr(decorated, constructor_name)
    wrapped_constructor = _with_old_arguments(constructor, decorated.__qualname__, new_names)
    if wrapped_constructor is not constructor:
        setattr(decorated, constructor_name, wrapped_constructor)
    _rename_in_subclasses(decorated, new_names)
    return decorated


def find_by_old_name(module: str, name: str) -> object:
    """Return the object of a module that had this name in version 0.1, with a warning. For a ``__getattr__``.

    Raises ``AttributeError`` for a name that is not an old one.
    """
    new_name = RENAMED.get(module, {}).get(name)
    if new_name is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_of_old_name(module, name, new_name, stack_level=4)
    return getattr(sys.modules[module], new_name)


def warn_of_old_name(owner: str, old_name: str, new_name: str, *, stack_level: int = 3) -> None:
    """Warn that a name is old.

    Args:
        owner: the package, class or function that the name belongs to.
        old_name: the name that was used.
        new_name: the name to use instead.
        stack_level: number of stack frames between this function and the code that used the name.
    """
    message = f"{owner}: {old_name} is now called {new_name}; the old name works until the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=stack_level)


class _OldAttribute:
    """A descriptor that forwards an old name to the new one.

    Each class that defines the new name has a descriptor, so that ``super()`` finds the old name in the same
    class as the new one.
    """

    def __init__(self, owner_name: str, old_name: str, new_name: str) -> None:
        self._owner_name = owner_name
        self._old_name = old_name
        self._new_name = new_name

    def __get__(self, instance: object, owner: type) -> object:
        warn_of_old_name(self._owner_name, self._old_name, self._new_name)
        searched: Any = owner if instance is None else instance
        classes = [searched_class for searched_class in owner.__mro__ if self._old_name in vars(searched_class)]
        if vars(classes[0])[self._old_name] is not self:
            # An ordinary lookup would have found the first class, so a subclass calls its base class by super().
            own_class = next(found for found in classes if vars(found)[self._old_name] is self)
            previous_class = owner.__mro__[owner.__mro__.index(own_class) - 1]
            searched = super(previous_class, searched)
        return getattr(searched, self._new_name)

    def __set__(self, instance: object, value: object) -> None:
        warn_of_old_name(self._owner_name, self._old_name, self._new_name)
        setattr(instance, self._new_name, value)


def _with_old_arguments(function: Any, owner: str, new_names: Mapping[str, str]) -> Any:
    """Return a function that also accepts old argument names; the function itself if no argument was renamed.

    A function that is called for each token lists an old argument itself, so that no wrapper slows it down.
    """
    parameters = inspect.signature(function).parameters
    renamed_arguments = {
        old_name: new_name
        for old_name, new_name in new_names.items()
        if new_name in parameters and old_name not in parameters
    }
    if not renamed_arguments:
        return function

    @functools.wraps(function)
    def call_with_new_names(*arguments: Any, **keywords: Any) -> Any:
        for old_name in renamed_arguments.keys() & keywords.keys():
            new_name = renamed_arguments[old_name]
            replace_frame_count = _count_frames_of_replace() if new_name in keywords else 0
            if new_name in keywords and not replace_frame_count:
                raise TypeError(f"{owner}: {old_name} and {new_name} are one argument")
            # dataclasses.replace passes all fields. The old name has the value that the caller of replace chose.
            warn_of_old_name(owner, old_name, new_name, stack_level=3 + replace_frame_count)
            keywords[new_name] = keywords.pop(old_name)
        return function(*arguments, **keywords)

    return call_with_new_names


def _count_frames_of_replace() -> int:
    """Return the number of frames of ``dataclasses.replace`` or ``copy.replace`` that called the constructor."""
    frame = inspect.currentframe()
    for _ in range(2):  # this function and the constructor
        frame = frame and frame.f_back
    count = 0
    while frame is not None and frame.f_globals.get("__name__") in ("dataclasses", "copy"):
        count += 1
        frame = frame.f_back
    return count


def _rename_in_subclasses(base: type, new_names: Mapping[str, str]) -> None:
    """Give the new name to each subclass that has an old one, in its body or from another base class."""
    own_init = vars(base).get("__init_subclass__")

    def init_subclass(subclass: type, /, **keywords: Any) -> None:
        for old_name, new_name in new_names.items():
            definition = _find_definition(subclass, base, old_name, new_name)
            if definition is not None:
                warn_of_old_name(subclass.__qualname__, old_name, new_name)
                setattr(subclass, new_name, definition[0])
            if definition is not None or (new_name in vars(subclass) and old_name not in vars(subclass)):
                setattr(subclass, old_name, _OldAttribute(subclass.__qualname__, old_name, new_name))
        base_class = super(base, subclass)
        call_init = own_init.__get__(None, subclass) if own_init else base_class.__init_subclass__
        call_init(**keywords)

    setattr(base, "__init_subclass__", classmethod(init_subclass))  # noqa: B010 - mypy allows no assignment


def _find_definition(subclass: type, base: type, old_name: str, new_name: str) -> tuple[Any] | None:
    """Return the value that a class before ``base`` defines by the old name; None if the new name precedes it.

    The value is in a tuple, because it may be None.
    """
    for searched_class in subclass.__mro__[: subclass.__mro__.index(base)]:
        names = vars(searched_class)
        if new_name in names:
            return None
        if old_name in names and not isinstance(names[old_name], _OldAttribute):
            return (names[old_name],)
    return None
