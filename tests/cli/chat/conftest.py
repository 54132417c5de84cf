"""The store, the conversation and the model of the tests of chats/."""

from ...chats.conftest import conversation, model, model_path, notes, session, store

__all__ = ["conversation", "model", "model_path", "notes", "session", "store"]
