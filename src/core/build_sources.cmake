# build_sources(to ROOT): the files that decide what libcrimp.so and its plugin do, relative to the root, in order.
function(build_sources to root)
  file(GLOB_RECURSE files RELATIVE ${root} ${ARGN} ${root}/include/*.h ${root}/include/*.hpp ${root}/src/*.h ${root}/src/*.hpp ${root}/src/*.cpp
    ${root}/src/*.cu ${root}/src/*.cuh ${root}/src/*.def ${root}/mpi_shim/*.hpp ${root}/mpi_shim/*.cpp ${root}/mpi_shim/*.fbs)
  list(FILTER files EXCLUDE REGEX "^src/(tools|python)/|_(reference|test)\\.[ch]pp$")
  list(APPEND files CMakeLists.txt src/CMakeLists.txt mpi_shim/CMakeLists.txt)  # the compilers' flags
  list(SORT files)
  set(${to} ${files} PARENT_SCOPE)
endfunction()
