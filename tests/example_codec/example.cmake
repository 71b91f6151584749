# The worked example of src/README.md, "Add a codec": the folder stoch8, built and tested as if it lay in src/codec. What has to change outside of it for that is a row in
# registry.def and the format's text: copies of these two files have it, everything else is src/codec as it is. Objects and libraries of the other tests are linked again.
set(example ${CMAKE_CURRENT_LIST_DIR}/stoch8)
set(tree ${CMAKE_CURRENT_BINARY_DIR}/example_codec)
file(MAKE_DIRECTORY ${tree}/codec)
file(GLOB entries CONFIGURE_DEPENDS RELATIVE ${codec_tree} ${codec_tree}/*)
list(REMOVE_ITEM entries registry.def WIRE_FORMAT.md)
foreach(entry ${entries})
  file(CREATE_LINK ${codec_tree}/${entry} ${tree}/codec/${entry} SYMBOLIC)
endforeach()
file(CREATE_LINK ${example} ${tree}/codec/stoch8 SYMBOLIC)

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${codec_tree}/registry.def ${codec_tree}/WIRE_FORMAT.md ${example}/format.md)
file(READ ${codec_tree}/registry.def rows)
file(CONFIGURE OUTPUT ${tree}/codec/registry.def @ONLY CONTENT "${rows}CRIMP_CODEC(stoch8, \"stoch8\", with_kernels)\n")
file(READ ${codec_tree}/WIRE_FORMAT.md format)
file(READ ${example}/format.md section)
string(REGEX REPLACE "(\\| 5 \\| 1 \\| codec \\| [^|]*[^| ]) \\|" "\\1, 200 stoch8 |" format "${format}")
string(REPLACE "\n## 5. Random numbers" "\n${section}\n## 5. Random numbers" format "${format}")
file(CONFIGURE OUTPUT ${tree}/codec/WIRE_FORMAT.md @ONLY CONTENT "${format}")

file(GLOB sources CONFIGURE_DEPENDS ${example}/*_host.cpp ${example}/*_test.cpp ${example}/*_reference.cpp)
references_table(${tree}/references.cpp ${references} ${example}/stoch8_reference.cpp)
set_source_files_properties(${example}/stoch8_cuda.cu PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
# Its own registries come before those of the libraries, which are then not linked.
add_executable(crimp_example_codec ${sources} ${example}/stoch8_cuda.cu ${tree}/references.cpp ${tree}/codec/registry.cpp ${tree}/codec/device_registry.cpp)
target_include_directories(crimp_example_codec BEFORE PRIVATE ${tree})
target_link_libraries(crimp_example_codec PRIVATE crimp_test_main crimp_codec_suites crimp_device_suites crimp_codec_support crimp_device_simt doctest::doctest)
if(NOT CRIMP_SANITIZE)  # a codec and kernels are in it, which all checks are for
  target_compile_options(crimp_example_codec PRIVATE ${quickly_compiled})
endif()
add_dependencies(crimp_unit crimp_example_codec)
add_test(NAME unit.example_codec
  COMMAND crimp_example_codec --test-suite=stoch8,codec_contract,codec_spec,golden,device_codec "--test-case-exclude=PowerSGD*,sums are*,malformed bodies of single*" --no-intro=true)
set_tests_properties(unit.example_codec PROPERTIES LABELS unit TIMEOUT 300 FAIL_REGULAR_EXPRESSION "test cases: *0 "
  ENVIRONMENT "TEST_CODEC=stoch8;CODEC_TREE=${tree}/codec;ASAN_OPTIONS=detect_leaks=0")
