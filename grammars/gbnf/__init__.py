"""GBNF, llama.cpp's notation of grammars, and its translation to llguidance's dialect of Lark."""
