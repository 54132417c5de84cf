"""Texts without certain letters: a sampler, a command and a format of presets for logitsmith."""
