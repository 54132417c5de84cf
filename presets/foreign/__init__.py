"""Presets of other tools, a module for each tool."""

FORMATS = (
    *("webui", "sillytavern", "koboldai", "koboldcpp", "huggingface", "ollama", "tabbyapi", "llama.cpp"),
    "lmstudio",
)
"""The formats that `import_preset` reads."""

EXPORT_FORMATS = (
    *("llama.cpp", "llama-server", "webui", "sillytavern", "koboldai", "koboldcpp", "huggingface", "ollama"),
    *("tabbyapi", "lmstudio"),
)
"""The formats that `export_preset` writes.

``llama.cpp`` is a command line; ``llama-server`` and ``koboldcpp`` are the JSON body of a request.
"""
