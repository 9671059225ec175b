# Every compile_fail/<name>.cpp is a test for each compiler: it must fail with the texts it expects, and its mended
# form must compile. nvcc is slow and prints sentences only, so it takes the failing form alone.
function(dtrain_add_compile_fail_test test source compiler)
  add_test(NAME "${test}"
           COMMAND "${CMAKE_COMMAND}" "-DKIND=${compiler}" "-DCOMPILER=${DTRAIN_TEST_COMPILER_${compiler}}"
                   "-DSOURCE=${source}" "-DOPTIONS=${dtrain_include_options}"
                   "-DPRECOMPILED=${dtrain_precompiled_${compiler}}" -P
                   "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compile_fail.cmake")
  set_tests_properties("${test}" PROPERTIES LABELS compile_fail TIMEOUT 120)
  if(dtrain_precompiled_${compiler})
    set_tests_properties("${test}" PROPERTIES FIXTURES_REQUIRED dtrain_precompiled_${compiler})
  endif()
endfunction()

# The headers are most of such a source: g++ and clang read them once, as the first test.
foreach(compiler IN LISTS dtrain_test_compilers)
  if(compiler STREQUAL "nvcc")
    continue()
  endif()
  set(dtrain_precompiled_${compiler} "${CMAKE_CURRENT_BINARY_DIR}/compile_fail/${compiler}/all.hpp")
  file(CONFIGURE OUTPUT "${dtrain_precompiled_${compiler}}" CONTENT "#include <dtrain/dtrain.hpp>\n" @ONLY)
  if(compiler STREQUAL "gcc")
    set(options -fdiagnostics-plain-output -o "${dtrain_precompiled_gcc}.gch")
  else()
    set(options -o "${dtrain_precompiled_clang}.pch")
  endif()
  add_test(NAME compile_fail/precompiled/${compiler}
           COMMAND "${DTRAIN_TEST_COMPILER_${compiler}}" -std=c++20 ${dtrain_include_options} -x c++-header ${options}
                   "${dtrain_precompiled_${compiler}}")
  set_tests_properties(compile_fail/precompiled/${compiler}
                       PROPERTIES LABELS compile_fail TIMEOUT 120 FIXTURES_SETUP dtrain_precompiled_${compiler})
endforeach()

file(GLOB dtrain_compile_fail_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
foreach(source IN LISTS dtrain_compile_fail_sources)
  get_filename_component(name "${source}" NAME_WE)
  foreach(compiler IN LISTS dtrain_test_compilers)
    dtrain_add_compile_fail_test("compile_fail/${name}/${compiler}" "${source}" ${compiler})
  endforeach()
endforeach()

# The harness itself: what it must report of sources that do not do what they say.
list(GET dtrain_test_compilers 0 compiler)
foreach(
  pair IN
  ITEMS "compiles|compiled, and must not"
        "other_numbers|did not print Divides<6, 5>"
        "other_sentence|did not print dtrain: the heads"
        "broken_mend|the mended form must compile, and does not"
        "no_sentence|expects no sentence")
  string(REGEX MATCH "^([a-z_]+)\\|(.*)$" pair "${pair}")
  set(name "${CMAKE_MATCH_1}")
  # CMake breaks the lines of its messages where it likes.
  string(REPLACE " " "[ \n]+" report "${CMAKE_MATCH_2}")
  dtrain_add_compile_fail_test("compile_fail/harness/${name}" "${CMAKE_CURRENT_LIST_DIR}/harness/${name}.cpp"
                               ${compiler})
  set_tests_properties("compile_fail/harness/${name}" PROPERTIES PASS_REGULAR_EXPRESSION "${report}")
endforeach()
