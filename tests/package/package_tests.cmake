# Projects that use dtrain as its users do: each is configured, built and run as a test.
set(dtrain_package_root "${CMAKE_CURRENT_BINARY_DIR}/package")
set(dtrain_package_prefix "${dtrain_package_root}/prefix")

if(DTRAIN_INSTALL)
  add_test(NAME package/install COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix
                                        "${dtrain_package_prefix}")
  set_tests_properties(package/install PROPERTIES LABELS package TIMEOUT 60 FIXTURES_SETUP dtrain_installed)
  set(consumers find_package add_subdirectory fetch_content)
else()
  set(consumers add_subdirectory fetch_content)
endif()

foreach(consumer IN LISTS consumers)
  set(options "-DCMAKE_BUILD_TYPE=Debug" "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}")
  if(DTRAIN_CCACHE)
    list(APPEND options "-DCMAKE_CXX_COMPILER_LAUNCHER=${DTRAIN_CCACHE}")
  endif()
  if(consumer STREQUAL "find_package")
    list(APPEND options "-DCMAKE_PREFIX_PATH=${dtrain_package_prefix}")
  else()
    list(APPEND options "-DDTRAIN_SOURCE=${PROJECT_SOURCE_DIR}")
  endif()
  add_test(
    NAME package/${consumer}
    COMMAND
      "${CMAKE_CTEST_COMMAND}" --build-and-test "${CMAKE_CURRENT_LIST_DIR}/${consumer}"
      "${dtrain_package_root}/${consumer}" --build-generator "${CMAKE_GENERATOR}" --build-options ${options}
      --test-command consumer)
  set_tests_properties(package/${consumer} PROPERTIES LABELS package TIMEOUT 300)
  if(consumer STREQUAL "find_package")
    set_tests_properties(package/${consumer} PROPERTIES FIXTURES_REQUIRED dtrain_installed)
  endif()
endforeach()
