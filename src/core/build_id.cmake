# cmake -DROOT=... -DOUTPUT=build_id.cpp -P build_id.cmake: src/core/build_id.hpp's function.
include(${CMAKE_CURRENT_LIST_DIR}/build_sources.cmake)
build_sources(files ${ROOT})
set(all "")
foreach(file IN LISTS files)
  file(SHA256 ${ROOT}/${file} hash)
  string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
# The words in front find it in the library: strings libcrimp.so | grep 'crimp build'.
file(WRITE ${OUTPUT} "#include \"core/build_id.hpp\"\n\nnamespace crimp {\n
const char* build_id() noexcept {\n  static const char text[] = \"crimp build ${id}\";\n  return text + 12;\n}\n
}  // namespace crimp\n")
