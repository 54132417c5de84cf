"""The endpoints: the base class, a local model, llama.cpp's server, OpenAI's API."""
