# Read after project(ggml). The rest of llama.cpp is compiled with -O1, which takes half the time; the kernels that do
# the arithmetic are not.
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
