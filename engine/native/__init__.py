"""llama.cpp's C functions, behind classes that raise ModelError."""
