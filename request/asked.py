"""What a request asks for, whichever client or file says it, and how the fields of a body say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..common.errors import InvalidFieldError
from ..common.strict_model import Json
from ..engine.chat_template import CONTINUED_REASONING, BegunReasoning, Message
from ..engine.token_records import LogprobRequest
from ..logprobs.openai import ReasoningFormat
from ..presets.errors import PresetError
from ..presets.overrides import Override, parse_set
from .fields import ChatFields, GenerationFields, MessageFields, PromptFields, read_settings, set_arguments
from .messages import PlacedMessage, template_fields_of, unused_reasoning_of
from .sampler_fields import SamplerFields, first_given


@dataclass(frozen=True)
class AskedRequest:
    """What a request asks for. It takes precedence over the defaults, see `RequestDefaults`."""

    prompts: tuple[str | list[int], ...] = ()  # texts or token ids; empty if there are messages
    # whether the prompts never become messages of a chat: those of /v1/completions never do
    is_plain: bool = False
    # messages of a chat, in the form that chat templates expect; None if there are prompts
    messages: list[Message] | None = None
    # the fields that an answer of `/v1/responses` repeats; None for all other requests
    repeated_fields: Json | None = None
    reasoning_format: ReasoningFormat = "auto"  # where the answer to a chat has the reasoning
    beginning: str = ""  # text of the answer that the prompt or the last message already has
    reasoning: BegunReasoning | None = None  # reasoning that the last message already has
    overrides: tuple[Override, ...] = ()  # settings; if several set the same one, the last counts
    model: str | None = None  # the name of a model, which may end in the name of a preset
    preset: str | None = None  # name or file of a preset; None uses the preset of the defaults
    preset_field: str = "preset"  # the field that names the preset
    # a chain, as ``--chain`` accepts it; None uses the chain of the preset or the defaults
    chain: str | None = None
    # the fields that change the chain; None if there are none. The client's tool decides what they mean.
    sampler_fields: SamplerFields | None = None
    place: str = ""  # prefix of the names of the fields in messages, such as ``body.``
    logprobs: LogprobRequest | None = None  # None uses the number of the defaults
    top_logprob_count: int = 0  # number of most likely tokens to list for each token of the answer
    # number of most likely tokens to list for each token of the prompt; None if the prompt gets no logprobs
    prompt_logprob_count: int | None = None
    # number of candidates that are traced through the chain; None uses the number of the defaults
    trace_top_count: int | None = None
    has_echo: bool = False  # whether the tokens of the prompt are returned, too
    stop_token_ids: tuple[int, ...] = ()
    ends_at_eog: bool = True
    # number of texts for each prompt; the first one uses the seed, the second one the seed plus 1, and so on
    choice_count: int = 1
    # settings of a beam search, as arguments of `BeamSearch`; empty if there are none
    beam_settings: Mapping[str, Any] = field(default_factory=dict)
    # name, file or source of a chat template; None uses the template of the defaults
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None  # variables of the chat template; None: none
    # the paths of fields that have no effect, such as ``body.messages[1].annotations``
    ignored: tuple[str, ...] = ()
    # the paths of fields that only some chat templates read, each with the name that templates have for it
    template_fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def chain_origin(self) -> str:
        """The field or the flag that sets the chain, as messages name it."""
        return "--chain" if self.chain is None else f"{self.place}chain"

    def with_preset_of_model(self, model_name: str) -> AskedRequest:
        """Return the request with the preset that its model's name chooses, as in ``MODEL:PRESET``."""
        preset = preset_of_model(self.model, model_name)
        if preset is None or self.preset == preset:
            return self
        if self.preset is not None:
            return replace(self, ignored=(*self.ignored, f"{self.place}model"))
        return replace(self, preset=preset, preset_field="model")

    @property
    def sets_system(self) -> bool:
        """True if the settings of the request have a system message."""
        return any(override.target == "system" and override.value is not None for override in self.overrides)

    @property
    def sets_chain(self) -> bool:
        """True if the request names a chain, or a preset with one."""
        return self.preset is not None or self.chain is not None


def preset_of_model(requested_model: str | None, model_name: str) -> str | None:
    """Return the preset that the name of a model chooses, as in ``MODEL:PRESET``; None if it chooses none."""
    name, colon, preset = (requested_model or "").partition(f"{model_name}:")
    return preset if colon and not name else None


def ask(fields: PromptFields | MessageFields, ignored: Sequence[str] = (), place: str = "") -> AskedRequest:
    """Return what the fields of a body ask for."""
    # ``ignored``: paths of fields that are known to have no effect. ``place``: prefix of the names of fields.
    # Raises ``InvalidFieldError``, which names the field without the place, and ``PresetError``, which names it
    # with the place.
    if isinstance(fields, PromptFields):
        _check_has_no_template(fields)
    unused: list[str] = []
    overrides = tuple(_overrides(fields, unused, place))
    _, choice_count = first_given(fields, ("n", "n_cmpl"), unused)
    placed_messages = fields.placed_messages() if isinstance(fields, MessageFields) else []
    asked = AskedRequest(
        overrides=overrides,
        model=fields.model,
        preset=fields.preset,
        chain=fields.chain,
        sampler_fields=fields,
        place=place,
        trace_top_count=fields.trace,
        has_echo=bool(fields.echo),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        ends_at_eog=not fields.bypass_eos,
        choice_count=choice_count or 1,
        chat_template=fields.chat_template,
        chat_template_kwargs=fields.chat_template_kwargs,
        template_fields=template_fields_of(placed_messages, fields.chat_template_kwargs, place),
    )
    if isinstance(fields, PromptFields):
        prompts = tuple(fields.prompts())
        asked = replace(asked, prompts=prompts, is_plain=True, beginning=fields.beginning or "")
    else:
        chat = _begun_chat(fields, placed_messages, unused)
        asked = replace(asked, messages=chat.messages, beginning=chat.beginning, reasoning=chat.reasoning)
        asked = replace(asked, repeated_fields=fields.repeated())
        if isinstance(fields, ChatFields) and fields.reasoning_format is not None:
            asked = replace(asked, reasoning_format=fields.reasoning_format)
        unused += fields.without_effect()
        if chat.reasoning is not None:
            continued = {place + path: CONTINUED_REASONING for path, _ in placed_messages[-1].template_fields()}
            asked = replace(asked, template_fields={**asked.template_fields, **continued})
        is_continued = bool(chat.beginning) or chat.reasoning is not None
        if fields.add_generation_prompt is is_continued:
            unused.append("add_generation_prompt")  # the last message decides whether a new answer begins
    asked = _with_logprobs(asked, fields, unused)
    if asked.sets_system:  # a prompt has no system message, and the system message of a chat is in its messages
        unused.append("set.system")
    if fields.best_of is not None and fields.best_of != asked.choice_count:
        unused.append("best_of")
    unused_paths = [place + name for name in unused]
    return replace(asked, ignored=(*ignored, *unused_paths))


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


class _BegunChat(NamedTuple):
    """The messages before the answer, and the beginning of the answer with its reasoning."""

    messages: list[Message]
    beginning: str = ""
    reasoning: BegunReasoning | None = None


def _begun_chat(fields: MessageFields, placed_messages: Sequence[PlacedMessage], unused: list[str]) -> _BegunChat:
    """Return the messages of a chat, and the beginning of the answer.

    If the last message is the assistant's, the answer continues that message.
    """
    messages = [placed.message.template_message() for placed in placed_messages]
    unused += unused_reasoning_of(placed_messages)
    last_message = messages[-1]
    is_continued = (
        len(messages) > 1
        and last_message["role"] == "assistant"
        and "tool_calls" not in last_message
        and fields.continue_final_message is not False
    )
    if not is_continued:
        unused += ["continue_final_message"] if fields.continue_final_message else []
        return _BegunChat(messages)
    unused += [path for path, name in placed_messages[-1].template_fields() if name != "reasoning_content"]
    content, reasoning = last_message["content"], last_message.get("reasoning_content", "")
    if fields.continue_final_message == "reasoning_content":
        if content:
            unused += placed_messages[-1].paths_of("content")
        return _BegunChat(messages[:-1], reasoning=BegunReasoning(reasoning, is_complete=False))
    has_answer = bool(content) or fields.continue_final_message == "content"
    begun_reasoning = BegunReasoning(reasoning, has_answer) if reasoning else None
    return _BegunChat(messages[:-1], _begun_text(content), begun_reasoning)


def _begun_text(content: str | list[Json]) -> str:
    """Return the text of a message that is continued. Its parts are paragraphs, as in llama-server."""
    if isinstance(content, str):
        return content
    return "\n\n".join(part["text"] for part in content)


def _with_logprobs(asked: AskedRequest, fields: GenerationFields, unused: list[str]) -> AskedRequest:
    """Return what is asked for with logprobs. Names of fields without effect are appended to ``unused``."""
    answer_counts = _answer_logprob_counts(fields)
    prompt_count = _prompt_logprob_count(fields)
    if fields.top_logprobs and "top_logprobs" not in answer_counts:
        unused.append("top_logprobs")
    all_counts = answer_counts if prompt_count is None else {"prompt_logprobs": prompt_count, **answer_counts}
    if not all_counts:
        names = ("logprobs_from", "post_sampling_probs", "return_tokens_as_token_ids")
        unused += [name for name in names if getattr(fields, name)]
        return asked
    source = fields.logprobs_from or ("chain" if fields.post_sampling_probs else "model")
    if fields.post_sampling_probs and source == "model":
        unused.append("post_sampling_probs")
    # The engine takes one count for the prompt and the answer. Messages name the field with the largest count.
    largest_field = max(all_counts, key=all_counts.__getitem__)
    token_ids = tuple(fields.logprob_token_ids or ())
    logprobs = LogprobRequest(all_counts[largest_field], source, token_ids, asked.place + largest_field, lowest=0)
    return replace(
        asked,
        logprobs=logprobs,
        top_logprob_count=max(answer_counts.values(), default=0),
        prompt_logprob_count=prompt_count,
        has_echo=asked.has_echo or prompt_count is not None,
    )


def _answer_logprob_counts(fields: GenerationFields) -> dict[str, int]:
    """Return the number of logprobs for each token of the answer, by the field that asks for them."""
    counts = {}
    if fields.logprobs is not None and fields.logprobs is not False:
        # ``true`` asks for the logprob of the token itself, and for no others
        counts["logprobs"] = 0 if fields.logprobs is True else fields.logprobs
        counts["top_logprobs"] = fields.top_logprobs or 0
    if fields.n_probs or fields.logprob_token_ids or fields.trace:  # a trace is part of a token's logprobs
        counts["n_probs"] = fields.n_probs or 0
    return counts


def _prompt_logprob_count(fields: GenerationFields) -> int | None:
    """Return the number of logprobs for each token of the prompt; None if the prompt gets no logprobs."""
    if fields.prompt_logprobs is True:
        return 1
    return None if fields.prompt_logprobs is False else fields.prompt_logprobs
