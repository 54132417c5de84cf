"""Requests made of flags, presets and the lines of a file, and the batches and scores that answer such files."""
