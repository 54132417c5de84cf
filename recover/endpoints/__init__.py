"""The endpoints that can be asked: the base class, a local model, llama.cpp's server, OpenAI's API."""
