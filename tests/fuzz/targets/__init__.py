"""All targets by name."""

from __future__ import annotations

from ..target import Target
from . import batches, chat_templates, chats, grammars, models, recoveries, runs, settings, stories, texts

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (settings, grammars, runs, batches, texts, chat_templates, chats, stories, recoveries, models)
    for target in module.TARGETS
}
