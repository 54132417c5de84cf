"""The chat templates that are built into llama.cpp, which writes their prompts in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache

from ..models.errors import ModelError
from .chat_template import ChatPrompt, ChatTemplate, Message, content_text
from .native.binding import lib


@lru_cache(maxsize=1)
def builtin_chat_templates() -> tuple[str, ...]:
    """Return the names of llama.cpp's built-in chat templates, such as ``chatml``, in alphabetical order."""
    count = lib.llama_chat_builtin_templates(None, 0)
    names = (ctypes.c_char_p * count)()
    lib.llama_chat_builtin_templates(names, count)
    return tuple(sorted(name.decode() for name in names if name))


class NativeChatTemplate(ChatTemplate):
    """A chat template that is built into llama.cpp."""

    def __init__(self, name: str) -> None:
        """Use a template. ``name``: one of `builtin_chat_templates`."""
        self.name = f"the chat template {name}"
        self._key = name.encode()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt for the messages of a chat, as llama.cpp's ``llama_chat_apply_template`` writes it."""
        native_messages = (lib.llama_chat_message * len(messages))()
        texts = [
            (_encode_c_string(message["role"]), _encode_c_string(content_text(message["content"])))
            for message in messages
        ]
        for native_message, (role, content) in zip(native_messages, texts, strict=True):
            native_message.role = role
            native_message.content = content
        capacity = 1024 + 2 * sum(len(role) + len(content) for role, content in texts)
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            length = lib.llama_chat_apply_template(
                self._key, native_messages, len(messages), add_generation_prompt, buffer, capacity
            )
            if length < 0:
                raise ModelError(f"{self.name} rejects these messages")
            if length <= capacity:
                return ChatPrompt(buffer.raw[:length].decode("utf-8", "replace"))
            capacity = length


def _encode_c_string(text: str) -> bytes:
    if "\0" in text:
        raise ModelError(
            "a message has the character U+0000, which ends a string in llama.cpp's built-in chat templates"
        )
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ModelError("a message is not UTF-8") from None
