"""Conversations with a model: their messages, the file that stores them, and the answers."""
