"""The chat templates that llama.cpp has built in, by name: it writes their prompts in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache

from ..models.errors import ModelError
from .chat_template import ChatPrompt, ChatTemplate, Message
from .native_binding import lib


@lru_cache(maxsize=1)
def builtin_chat_templates() -> tuple[str, ...]:
    """The names of llama.cpp's built-in chat templates, such as ``chatml``, in alphabetical order."""
    count = lib.llama_chat_builtin_templates(None, 0)
    names = (ctypes.c_char_p * count)()
    lib.llama_chat_builtin_templates(names, count)
    return tuple(sorted(name.decode() for name in names if name))


class NativeChatTemplate(ChatTemplate):
    """A chat template that llama.cpp has built in. ``name``: one of `builtin_chat_templates`."""

    def __init__(self, name: str) -> None:
        self.name, self._key = f"the chat template {name}", name.encode()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt of some messages, as llama.cpp's ``llama_chat_apply_template`` writes it."""
        chat = (lib.llama_chat_message * len(messages))()
        texts = [(_c_text(message["role"]), _c_text(message["content"])) for message in messages]
        for native, (role, content) in zip(chat, texts, strict=True):
            native.role, native.content = role, content
        capacity = 1024 + 2 * sum(len(role) + len(content) for role, content in texts)
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            length = lib.llama_chat_apply_template(
                self._key, chat, len(messages), add_generation_prompt, buffer, capacity
            )
            if length < 0:
                raise ModelError(f"{self.name} refuses these messages")
            if length <= capacity:
                return ChatPrompt(buffer.raw[:length].decode("utf-8", "replace"))
            capacity = length


def _c_text(text: str) -> bytes:
    if "\0" in text:
        raise ModelError(
            "a message holds the character U+0000, which ends a text in llama.cpp's built-in chat templates"
        )
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ModelError("a message is not UTF-8") from None
