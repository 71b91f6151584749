# The device side of the codecs: compiled by nvcc into the CUDA plugin, and by the host compiler for the executor of the tests.
set(crimp_device_sources adaq_cuda.cu cast_cuda.cu device_registry.cpp eightbit_cuda.cu fp16_cuda.cu fp8_cuda.cu inceptionn_cuda.cu natural_cuda.cu powersgd_cuda.cu randomk_cuda.cu signs_cuda.cu
  sketchml_cuda.cu sparse_cuda.cu terngrad_cuda.cu thc_cuda.cu threelc_cuda.cu uniform_cuda.cu)
list(TRANSFORM crimp_device_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
