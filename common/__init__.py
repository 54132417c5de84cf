"""The ground of all rooms: errors, text, strict JSON, and files. Knows nothing of tokens or models."""
