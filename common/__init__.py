"""What several rooms need: errors, text, strict JSON, and files. Knows nothing of tokens or models."""
