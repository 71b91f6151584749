# The device side of the codecs: compiled by nvcc into the CUDA plugin, and by the host compiler for the executor of the tests.
set(crimp_device_sources cast_cuda.cu device_registry.cpp randomk_cuda.cu signs_cuda.cu sketchml_cuda.cu sparse_cuda.cu thc_cuda.cu threelc_cuda.cu
  uniform_cuda.cu)
list(TRANSFORM crimp_device_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
