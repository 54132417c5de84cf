"""A terminal program for GGUF models that chooses every token with NumPy samplers. Its packages are links here."""

__version__ = "0.1.0"
