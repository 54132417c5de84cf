"""The objects of other systems, checked strictly: no field is missing, none is added, each is of its very type."""

from typing import Annotated, Any, Literal

from logitsmith.common.strict_json import encode_json
from pydantic import BaseModel, Field

Logprob = Annotated[float, Field(le=0)] | None
Byte = Annotated[int, Field(ge=0, le=255)]
Count = Annotated[int, Field(ge=0)]
TextReason = Literal["stop", "length", "content_filter"]
ChatReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class Strict(BaseModel, extra="forbid", strict=True):
    """An object with these fields and no others, of these very types."""


class Ours(Strict):
    """A whole response: it may have the one field that is ours."""

    logprobs_from: Literal["model", "chain"] | None = None


def one(kind):
    return Annotated[list[kind], Field(min_length=1, max_length=1)]


def checked(kind, found):
    """The object as its JSON is read, if it is of this kind."""
    return kind.model_validate_json(encode_json(found))


class Usage(Strict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Lists(Strict):
    tokens: list[str]
    token_logprobs: list[Logprob]


# --- OpenAI's


class Answer(Ours):
    created: int
    model: str
    system_fingerprint: str
    usage: Usage


class TextLogprobs(Lists):
    top_logprobs: list[dict[str, Annotated[float, Field(le=0)]] | None] | None
    text_offset: list[Count]


class TextChoice(Strict):
    text: str
    index: Literal[0]
    logprobs: TextLogprobs | None
    finish_reason: TextReason


class TextCompletion(Answer):
    id: Annotated[str, Field(pattern="^cmpl-.")]
    object: Literal["text_completion"]
    choices: one(TextChoice)


class TextChunkChoice(TextChoice):
    finish_reason: TextReason | None


class TextChunk(TextCompletion):
    choices: one(TextChunkChoice)
    usage: Usage | None = None


class TopToken(Strict):
    token: str
    logprob: Logprob
    bytes: list[Byte] | None


class ChatToken(TopToken):
    top_logprobs: list[TopToken]


class ChatLogprobs(Strict):
    content: list[ChatToken] | None
    refusal: None


class Message(Strict):
    role: Literal["assistant"]
    content: str


class OpenAIMessage(Message):
    refusal: None


class ChatChoice(Strict):
    index: Literal[0]
    message: OpenAIMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatReason


class ChatCompletion(Answer):
    id: Annotated[str, Field(pattern="^chatcmpl-.")]
    object: Literal["chat.completion"]
    choices: one(ChatChoice)


class Delta(Strict):
    role: Literal["assistant"] = "assistant"
    content: str = ""


class ChatChunkChoice(Strict):
    index: Literal[0]
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatReason | None


class ChatChunk(ChatCompletion):
    object: Literal["chat.completion.chunk"]
    choices: one(ChatChunkChoice)
    usage: Usage | None = None


# --- Together's


class TogetherPrompt(Strict):
    text: str
    logprobs: Lists | None


class TogetherChoice(Strict):
    finish_reason: Literal["stop", "eos", "length", "tool_calls", "function_call"]
    logprobs: Lists | None
    index: Literal[0]


class TogetherTextChoice(TogetherChoice):
    text: str


class TogetherChatChoice(TogetherChoice):
    message: Message


class TogetherAnswer(Ours):
    id: str
    created: int
    model: str
    prompt: Annotated[list[TogetherPrompt], Field(max_length=1)]
    usage: Usage


class TogetherText(TogetherAnswer):
    object: Literal["text_completion"]
    choices: one(TogetherTextChoice)


class TogetherChat(TogetherAnswer):
    object: Literal["chat.completion"]
    choices: one(TogetherChatChoice)


# --- llama-server's


class LlamaToken(Strict):
    id: int
    token: str
    bytes: list[Byte]


class LlamaLogprob(LlamaToken):
    logprob: Logprob


class LlamaChosenLogprob(LlamaLogprob):
    top_logprobs: list[LlamaLogprob]


class LlamaProb(LlamaToken):
    prob: Annotated[float, Field(ge=0, le=1)]


class LlamaChosenProb(LlamaProb):
    top_probs: list[LlamaProb]


class LlamaTimings(Strict):
    cache_n: Count = 0
    prompt_n: Count
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: Count
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class LlamaPlain(Ours):
    """Without completion_probabilities."""

    index: Literal[0]
    content: str
    tokens: list[int]
    id_slot: int
    stop: Literal[True]
    model: str
    tokens_predicted: Count
    tokens_evaluated: Count
    generation_settings: dict[str, Any]
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: Literal["none", "eos", "limit", "word"]
    stopping_word: str
    tokens_cached: Count
    timings: LlamaTimings


class LlamaFromModel(LlamaPlain):
    completion_probabilities: list[LlamaChosenLogprob]


class LlamaFromChain(LlamaPlain):
    completion_probabilities: list[LlamaChosenProb]


LLAMA_KINDS = {None: LlamaPlain, "model": LlamaFromModel, "chain": LlamaFromChain}
