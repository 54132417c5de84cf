"""Conversations, their store, and the answers in them."""
