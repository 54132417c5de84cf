"""The tokenizer and the description of the model, under the routes of all families.

llama-server, vLLM, text-generation-webui, TabbyAPI and lm-eval name one thing differently. Every route takes the
fields of all of them, and every answer has the keys of all of them.
"""

from __future__ import annotations

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.strict_model import Json, StrictModel
from ..engine.model import Model
from ..engine.vocabulary import Vocabulary, text_tokens as text_tokens_of
from ..requests.fields import ChatFields
from ..requests.messages import ChatMessage
from .errors import InvalidRequestError
from .openai import model_entry
from .resolution import RequestMaker
from .state import RouteSpec, ServerState, json_answer, read_fields


class EncodeFields(StrictModel):
    """A text whose tokens are returned: ``content`` (llama-server), ``prompt`` (vLLM) or ``text`` (others)."""

    model: str | None = None
    content: str | list[int | str] | None = None
    prompt: str | list[int | str] | None = None
    text: str | list[ChatMessage] | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    add_bos_token: bool | None = None
    parse_special: bool | None = None
    encode_special_tokens: bool | None = None
    with_pieces: bool | None = None

    @property
    def adds_special(self) -> bool:
        """True if BOS is added where the model adds it to prompts. llama-server does not add it by default."""
        for value in (self.add_special, self.add_special_tokens, self.add_bos_token):
            if value is not None:
                return value
        return self.content is None

    @property
    def parses_special(self) -> bool:
        """True if names of control tokens become these tokens."""
        return self.parse_special is not False and self.encode_special_tokens is not False


class DecodeFields(StrictModel):
    """Tokens whose text is returned."""

    model: str | None = None
    tokens: list[int] | None = None
    ids: list[int] | None = None
    decode_special_tokens: bool | None = None
    skip_special_tokens: bool | None = None


async def encode(request: Request, state: ServerState) -> Response:
    """Return the tokens of a text, and their number, under the names of all families."""
    model, maker = state.loaded()
    fields, ignored = await read_fields(request, state, EncodeFields)
    ids = await state.run(lambda: _encode(fields, model.vocabulary, maker))
    tokens = [_piece(model.vocabulary, token) for token in ids] if fields.with_pieces else ids
    counts = dict.fromkeys(("length", "count", "value"), len(ids))
    answer = {"tokens": tokens, "ids": ids, **counts, "max_model_len": model.context_length}
    return json_answer(request, answer, ignored)


def _encode(fields: EncodeFields, vocabulary: Vocabulary, maker: RequestMaker) -> list[int]:
    """Return the token ids that the fields ask for."""
    messages = fields.text if isinstance(fields.text, list) else fields.messages
    if messages:
        prepared = maker.make(ChatFields(messages=messages), [])
        return list(prepared.choices[0].request.prompt)  # type: ignore[arg-type]  # the maker writes ids
    given_texts = (fields.content, fields.prompt, fields.text)
    text = next((text for text in given_texts if text is not None), None)
    if text is None:
        raise InvalidRequestError("there is no text; give content, prompt, text or messages", "content")
    parts = [text] if isinstance(text, str) else text
    ids: list[int] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            ids += _text_ids(part, fields, vocabulary, is_first=index == 0)
        elif isinstance(part, int):
            ids.append(part)
    vocabulary.check(ids)
    return ids


def _text_ids(text: str, fields: EncodeFields, vocabulary: Vocabulary, *, is_first: bool) -> list[int]:
    """Return the token ids of a text. The first text may get BOS."""
    data = text.encode()
    adds_special = fields.adds_special and is_first
    if adds_special and fields.parses_special:
        return vocabulary.tokenize_prompt(data)
    ids = vocabulary.tokenize(data, fields.parses_special) if data else []
    if adds_special and vocabulary.adds_bos and vocabulary.bos is not None:
        ids.insert(0, vocabulary.bos)
    return ids


def _piece(vocabulary: Vocabulary, token: int) -> Json:
    """Return llama-server's description of a token. Bytes that are not UTF-8 are a list of numbers."""
    data = vocabulary.piece(token)
    try:
        return {"id": token, "piece": data.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(data)}


async def token_count(request: Request, state: ServerState) -> Response:
    """Return the number of tokens of a text."""
    return await encode(request, state)


async def decode(request: Request, state: ServerState) -> Response:
    """Return the text of tokens, under the names of all families."""
    model, _ = state.loaded()
    fields, ignored = await read_fields(request, state, DecodeFields)
    if fields.tokens is None and fields.ids is None:
        raise InvalidRequestError("there are no tokens; give tokens, a list of ids", "tokens")
    ids = fields.tokens if fields.tokens is not None else fields.ids or []
    leaves_out_control = fields.decode_special_tokens is False or fields.skip_special_tokens is True
    vocabulary = model.vocabulary

    def decoded() -> str:
        vocabulary.check(ids)
        shown_ids = ids
        if leaves_out_control:
            shown_ids = [token for token in ids if not vocabulary.is_control(token)]
        return b"".join(map(vocabulary.piece, shown_ids)).decode("utf-8", "replace")

    text = await state.run(decoded)
    return json_answer(request, dict.fromkeys(("content", "prompt", "text", "result"), text), ignored)


async def tokenizer_info(_: Request, state: ServerState) -> Response:
    """Return the special tokens and the chat template, as lm-eval asks for them."""
    model, _maker = state.loaded()
    names = ("eos", "bos", "pad")
    tokens = {f"{name}_token": model.special_text(name) or None for name in names}
    return JSONResponse({**tokens, "chat_template": model.chat_template})


async def webui_model(_: Request, state: ServerState) -> Response:
    """Name the model, as text-generation-webui does."""
    model, _maker = state.loaded()
    return JSONResponse({"model_name": model.name, "lora_names": [], "loader": "logitsmith"})


async def webui_models(_: Request, state: ServerState) -> Response:
    """List the model, as text-generation-webui does."""
    model, _maker = state.loaded()
    return JSONResponse({"model_names": [model.name]})


async def stop_generation(_: Request, state: ServerState) -> Response:
    """End all answers with the text so far."""
    state.loaded()
    state.engine.interrupt_all()
    return JSONResponse("OK")


async def tabby_model(_: Request, state: ServerState) -> Response:
    """Describe the model, as TabbyAPI does."""
    model, _maker = state.loaded()
    return JSONResponse(_tabby_card(model, state))


async def tabby_models(_: Request, state: ServerState) -> Response:
    """List the model, as TabbyAPI does."""
    model, _maker = state.loaded()
    return JSONResponse({"object": "list", "data": [_tabby_card(model, state)]})


def _tabby_card(model: Model, state: ServerState) -> Json:
    slots = state.engine.counts.slots
    parameters = {
        "max_seq_len": model.context_length,
        "cache_size": model.context_length * slots,
        "max_batch_size": slots,
        "prompt_template": None if model.chat_template is None else "from_tokenizer_config",
    }
    return model_entry(model, state.loaded_at) | {"logging": None, "parameters": parameters}


_ENCODED_KEYS = ("tokens", "ids", "length", "count", "value", "max_model_len")
_DECODED_KEYS = ("content", "prompt", "text", "result")
_MODEL_KEYS = ("id", "object", "parameters")


class TextFields(StrictModel):
    """A part of a text: the part after the token ``after``; without ``after``, the beginning of a prompt."""

    text: str
    after: int | None = None


async def text_tokens(request: Request, state: ServerState) -> Response:
    """Return the tokens of a part of a text.

    The bytes of the tokens are those of the text, except the first ``added`` bytes of a token: BOS, and the space
    that the tokenizer adds where a text begins.
    """
    fields, _ = await read_fields(request, state, TextFields)
    model, _ = state.loaded()
    return JSONResponse({"tokens": await state.run(lambda: _text_tokens(model.vocabulary, fields))})


def _text_tokens(vocabulary: Vocabulary, fields: TextFields) -> list[Json]:
    try:
        data = fields.text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError("half of a surrogate pair is not allowed in text", "text") from None
    tokens = text_tokens_of(vocabulary, data, fields.after)
    return [{"id": token.id, "bytes": list(token.piece), "added": token.added} for token in tokens]


ROUTES = (
    RouteSpec("/gen/text/tokens", text_tokens, body=TextFields, keys=("tokens",)),
    RouteSpec("/tokenize", encode, body=EncodeFields, keys=_ENCODED_KEYS),
    RouteSpec("/v1/tokenize", encode, body=EncodeFields, keys=_ENCODED_KEYS),
    RouteSpec("/detokenize", decode, body=DecodeFields, keys=_DECODED_KEYS),
    RouteSpec("/v1/detokenize", decode, body=DecodeFields, keys=_DECODED_KEYS),
    RouteSpec("/tokenizer_info", tokenizer_info, "GET", keys=("eos_token", "bos_token", "chat_template")),
    RouteSpec("/v1/internal/encode", encode, body=EncodeFields, keys=_ENCODED_KEYS),
    RouteSpec("/v1/internal/decode", decode, body=DecodeFields, keys=_DECODED_KEYS),
    RouteSpec("/v1/internal/token-count", token_count, body=EncodeFields, keys=_ENCODED_KEYS),
    RouteSpec("/v1/internal/model/info", webui_model, "GET", keys=("model_name", "lora_names")),
    RouteSpec("/v1/internal/model/list", webui_models, "GET", keys=("model_names",)),
    RouteSpec("/v1/internal/stop-generation", stop_generation),
    RouteSpec("/v1/token/encode", encode, body=EncodeFields, keys=_ENCODED_KEYS),
    RouteSpec("/v1/token/decode", decode, body=DecodeFields, keys=_DECODED_KEYS),
    RouteSpec("/v1/model", tabby_model, "GET", keys=_MODEL_KEYS),
    RouteSpec("/v1/model/list", tabby_models, "GET", keys=("object", "data")),
)
