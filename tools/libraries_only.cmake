# llama-cpp-python switches llama.cpp's common library on, which gen never loads. This file is read after that.
set(LLAMA_BUILD_COMMON OFF)
