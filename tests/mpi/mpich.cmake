# Which tests run under MPICH as well, as mpich.<name>.np<N>, label mpich. By default those that touch MPI itself: handles, errors, communicators, attributes, threads,
# loading, launching. What Crimp does between two MPI calls is the same code; `ctest -C mpich -L mpich` runs all of them, and first builds the programs that
# nothing else needs.

# Names of tests that cannot, and why.
set(mpich_cannot
  "left_behind|MPICH names no handles that are left"
  "mpi4py|Debian's mpi4py is built for Open MPI"
  "other_world|MPI_Comm_spawn of Debian's MPICH 4.0.2 fails by itself"
  "settings.build|the two libraries of this test are Open MPI's")
set(mpich_always sums.fp16 sums.threads sums.linked two_shot.fp16 two_shot.communicators homomorphic.sums integer_sum.sums low_rank$ passes communicators threads
  specials.fp16 errors faults.body faults.wire faults.differ faults.alloc faults.plan faults.fatal handlers halves.plain halves.truncating settings.default settings.differ
  settings.rank_0 settings.bad_on loading tool language control.sums control.passes control.hang control.until control.absent control.errors self_check stalls.first_call
  stalls.begun stalls.late stalls.preload segments nodes other_mpi control.other_mpi large_counts control.large_counts nonblocking
  scattered.large scattered.nonblocking control.scattered_large ireduced control.ireduced device.passes device.named_shares)
string(REPLACE ";" "|" mpich_always "^(${mpich_always})")

# In mpi_test, of whose arguments it makes its own.
macro(mpich_test name n)
  set(reason "")
  foreach(entry IN LISTS mpich_cannot)
    string(REGEX REPLACE "[|].*" "" pattern "${entry}")
    if("${name}" MATCHES "${pattern}")
      string(REGEX REPLACE "^[^|]*[|]" "" reason "${entry}")
    endif()
  endforeach()
  set(all "${program}" "${TEST_RUN}" "${TEST_PROGRAM}")
  string(REGEX MATCHALL "TARGET_FILE:mpi_[a-z0-9_]+" used "${all}")
  foreach(one IN LISTS used)
    string(REPLACE TARGET_FILE:mpi_ mpich_ one ${one})
    if(NOT TARGET ${one})
      set(reason "no ${one} is built")
    endif()
  endforeach()
  if(all MATCHES "TARGET_FILE:(crimp_tool|fashion_mnist)")
    set(reason "its program is built for the first MPI only")
  endif()
  foreach(part program TEST_RUN TEST_PROGRAM)
    set(${part}_twin "${${part}}")
    list(TRANSFORM ${part}_twin REPLACE "TARGET_FILE:(crimp|crimp_faults)>" "TARGET_FILE:\\1_mpich>")
    list(TRANSFORM ${part}_twin REPLACE "(TARGET_FILE:|from |of |, lib)mpi_" "\\1mpich_")
    list(TRANSFORM ${part}_twin REPLACE "OMPI_MCA_btl_vader_single_copy_mechanism=none" "STANDIN_KEYS=0")  # no_reading_across
  endforeach()
  if(reason)
    set(TEST_RUN_twin --skip ${reason})
    set(program_twin "")
    set(TEST_PROGRAM_twin "")
  endif()
  set(giving_way "")
  if(NOT TEST_ALONE)
    set(giving_way --giving-way $<TARGET_FILE:mpich_giving_way>)
  endif()
  set(only CONFIGURATIONS mpich)
  if("${name}" MATCHES "${mpich_always}" AND NOT TEST_LONG AND NOT TEST_LABEL STREQUAL "bench")
    set(only "")
  endif()
  add_test(NAME mpich.${name}.np${n}
           COMMAND ${python} -S ${PROJECT_SOURCE_DIR}/tests/mpi/run.py --mpi mpich -n ${n} ${alone} ${giving_way} --silent-on "leaked handle" ${TEST_RUN_twin} -- ${program_twin} ${TEST_PROGRAM_twin} ${only})
  set_tests_properties(mpich.${name}.np${n} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 RUN_SERIAL ${TEST_ALONE} LABELS mpich)
  if(only)
    set_tests_properties(mpich.${name}.np${n} PROPERTIES FIXTURES_REQUIRED mpich_programs)
  else()
    mpich_needs(${program_twin} ${TEST_RUN_twin} ${TEST_PROGRAM_twin})
  endif()
endmacro()

# mpich_needs(NAME|ARGUMENT...): programs that are built with everything else.
function(mpich_needs)
  string(REGEX MATCHALL "mpich_[a-z0-9_]+" programs "${ARGN}")
  foreach(program IN LISTS programs)
    if(TARGET ${program})
      set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL OFF)
    endif()
  endforeach()
endfunction()

if(NOT CRIMP_NO_MPICH)
  add_library(mpich_giving_way MODULE giving_way.c)
  target_link_libraries(mpich_giving_way PRIVATE ${CMAKE_DL_LIBS})
endif()
