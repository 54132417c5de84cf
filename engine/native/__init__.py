"""Wrappers of llama.cpp's C functions that raise ``ModelError``."""
