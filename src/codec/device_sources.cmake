# The device side of the codecs: compiled by nvcc into the CUDA plugin, and by the host compiler for the executor of the tests.
file(GLOB crimp_device_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*/*_cuda.cu)
list(APPEND crimp_device_sources ${CMAKE_CURRENT_LIST_DIR}/device_registry.cpp)
