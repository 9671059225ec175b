# Every compile_fail/<name>.cpp is a test for each compiler: it must fail with the texts it expects, and its mended
# form must compile. nvcc is slow and prints sentences only, so it takes the failing form alone.
file(GLOB dtrain_compile_fail_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
foreach(source IN LISTS dtrain_compile_fail_sources)
  get_filename_component(name "${source}" NAME_WE)
  foreach(compiler IN LISTS dtrain_test_compilers)
    set(test "compile_fail/${name}/${compiler}")
    add_test(NAME "${test}"
             COMMAND "${CMAKE_COMMAND}" "-DKIND=${compiler}" "-DCOMPILER=${DTRAIN_TEST_COMPILER_${compiler}}"
                     "-DSOURCE=${source}" "-DOPTIONS=${dtrain_include_options}" -P
                     "${CMAKE_CURRENT_LIST_DIR}/compile_fail.cmake")
    set_tests_properties("${test}" PROPERTIES LABELS compile_fail TIMEOUT 120)
  endforeach()
endforeach()
