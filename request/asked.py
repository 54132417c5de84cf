"""What a request asks for, whichever client or file says it, and how the fields of a body say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..engine.chat_template import Message, content_text
from ..engine.token_records import LogprobRequest
from ..presets.errors import PresetError
from ..presets.overrides import Override, parse_set
from .errors import InvalidFieldError
from .fields import ChatFields, GenerationFields, PromptFields, read_settings, set_arguments
from .messages import template_fields_of, unused_reasoning_of
from .sampler_fields import SamplerFields, first_given


@dataclass(frozen=True)
class AskedRequest:
    """What a request asks for. It takes precedence over the defaults, see `RequestDefaults`."""

    prompts: tuple[str | list[int], ...] = ()  # texts or token ids; empty if there are messages
    is_plain: bool = False  # whether a prompt is read as it is: a body of a route for completions is never a chat
    # messages of a chat, in the form that chat templates expect; None if there are prompts
    messages: list[Message] | None = None
    beginning: str = ""  # text of the answer that the prompt or the last message already has
    overrides: tuple[Override, ...] = ()  # settings; of several for one setting, the last one counts
    preset: str | None = None  # name or file of a preset; None uses the preset of the defaults
    # a chain, as ``--chain`` accepts it; None uses the chain of the preset or the defaults
    chain: str | None = None
    # the fields that change the chain, and mean what the tool of their client makes of them; None: there are none
    sampler_fields: SamplerFields | None = None
    place: str = ""  # what precedes the names of these fields, such as ``body.``
    logprobs: LogprobRequest | None = None  # None uses the number of the defaults
    top_logprob_count: int = 0  # how many of the most likely tokens are listed for each token of the answer
    prompt_logprob_count: int | None = None  # the same for each token of the prompt; None: no such logprobs
    # number of candidates that are traced through the chain; None uses the number of the defaults
    trace_top_count: int | None = None
    has_echo: bool = False  # whether the tokens of the prompt are returned, too
    stop_token_ids: tuple[int, ...] = ()
    ends_at_eog: bool = True
    choice_count: int = 1  # number of texts for each prompt. Their seeds count up.
    # settings of a beam search, as arguments of `BeamSearch`; empty if there are none
    beam_settings: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None  # name, file or source of a chat template; None uses that of the defaults
    chat_template_kwargs: Mapping[str, Any] | None = None  # variables of the chat template; None: none
    # the paths of fields that have no effect, such as ``body.messages[1].annotations``
    ignored: tuple[str, ...] = ()
    # the paths of fields that only some chat templates read, each with the name that templates have for it
    template_fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def chain_origin(self) -> str:
        """The origin of `chain` in messages; without one, that of the flags' chain."""
        return "--chain" if self.chain is None else f"{self.place}chain"

    @property
    def sets_system(self) -> bool:
        """True if the settings of the request have a system message."""
        return any(each.target == "system" and each.value is not None for each in self.overrides)

    @property
    def sets_chain(self) -> bool:
        """True if the request names a chain, or a preset with one."""
        return self.preset is not None or self.chain is not None


def ask(fields: PromptFields | ChatFields, ignored: Sequence[str] = (), place: str = "") -> AskedRequest:
    """Return what the fields of a body ask for."""
    # ``ignored``: paths of fields that are known to have no effect. ``place`` precedes the names of fields.
    # Raises ``InvalidFieldError`` without the place, ``PresetError`` with it.
    if isinstance(fields, PromptFields):
        _check_has_no_template(fields)
    unused: list[str] = []
    asked = AskedRequest(
        prompts=tuple(fields.prompts()) if isinstance(fields, PromptFields) else (),
        is_plain=isinstance(fields, PromptFields),
        beginning=(fields.beginning or "") if isinstance(fields, PromptFields) else "",
        overrides=tuple(_overrides(fields, unused, place)),
        preset=fields.preset,
        chain=fields.chain,
        sampler_fields=fields,
        place=place,
        trace_top_count=fields.trace,
        has_echo=bool(fields.echo),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        ends_at_eog=not fields.bypass_eos,
        choice_count=first_given(fields, ("n", "n_cmpl"), unused)[1] or 1,
        chat_template=fields.chat_template,
        chat_template_kwargs=fields.chat_template_kwargs,
        template_fields=template_fields_of(
            fields.messages if isinstance(fields, ChatFields) else None, fields.chat_template_kwargs, place
        ),
    )
    if isinstance(fields, ChatFields):
        messages, beginning = _messages(fields, unused)
        asked = replace(asked, messages=messages, beginning=beginning)
        if not beginning and fields.add_generation_prompt is False:
            unused.append("add_generation_prompt")  # only a continued message needs no prompt
    asked = _with_logprobs(asked, fields, unused)
    if asked.sets_system:  # a prompt has no system message, and messages have their own
        unused.append("set.system")
    if fields.best_of is not None and fields.best_of != asked.choice_count:
        unused.append("best_of")
    return replace(asked, ignored=(*ignored, *(place + name for name in unused)))


def _check_has_no_template(fields: PromptFields) -> None:
    for name in ("chat_template", "chat_template_kwargs"):
        if getattr(fields, name) is not None:
            raise InvalidFieldError(
                "a prompt gets no chat template; send messages to /v1/chat/completions", (name,)
            )


def _overrides(fields: GenerationFields, unused: list[str], place: str) -> Iterator[Override]:
    for argument in set_arguments(fields.set_ or []):
        yield parse_set(argument, f"{place}set")
    try:
        overrides = read_settings(fields, unused)
    except PresetError as error:
        raise error.at(place + error.origin, error.place) from None
    for override in overrides:
        yield replace(override, origin=place + override.origin)


def _messages(fields: ChatFields, unused: list[str]) -> tuple[list[Message], str]:
    """Return the messages of a chat, and the beginning of the answer: a last message of the assistant."""
    messages = [message.template_message() for message in fields.messages]
    unused += unused_reasoning_of(fields.messages)
    last = messages[-1]
    is_complete = last["role"] != "assistant" or "tool_calls" in last or fields.continue_final_message is False
    if is_complete or len(messages) == 1:
        return messages, ""
    unused += (f"messages[{len(messages) - 1}].{path}" for path, _ in fields.messages[-1].template_fields())
    return messages[:-1], content_text(last["content"])


def _with_logprobs(asked: AskedRequest, fields: GenerationFields, unused: list[str]) -> AskedRequest:
    """Return what is asked for with logprobs. Names of fields without effect are appended to ``unused``."""
    prompt_count = fields.prompt_logprobs
    if isinstance(prompt_count, bool):
        prompt_count = 1 if prompt_count else None
    counts = {} if prompt_count is None else {"prompt_logprobs": prompt_count}
    has_logprobs = fields.logprobs is not None and fields.logprobs is not False
    if has_logprobs:
        counts["logprobs"] = 0 if fields.logprobs is True else fields.logprobs or 0
        counts["top_logprobs"] = fields.top_logprobs or 0
    elif fields.top_logprobs:
        unused.append("top_logprobs")
    if fields.n_probs or fields.logprob_token_ids or fields.trace:  # a trace is part of a token's logprobs
        counts["n_probs"] = fields.n_probs or 0
    if not counts:
        names = ("logprobs_from", "post_sampling_probs", "return_tokens_as_token_ids")
        unused += [name for name in names if getattr(fields, name)]
        return asked
    source = fields.logprobs_from or ("chain" if fields.post_sampling_probs else "model")
    if fields.post_sampling_probs and source == "model":
        unused.append("post_sampling_probs")
    label = max(counts, key=counts.__getitem__)
    token_ids = tuple(fields.logprob_token_ids or ())
    return replace(
        asked,
        logprobs=LogprobRequest(counts[label], source, token_ids, asked.place + label, lowest=0),
        top_logprob_count=max((count for name, count in counts.items() if name != "prompt_logprobs"), default=0),
        prompt_logprob_count=prompt_count,
        has_echo=asked.has_echo or prompt_count is not None,
    )
