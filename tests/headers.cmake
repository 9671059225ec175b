# Every header is compiled alone and included twice by this build's compiler, as part of the build; the other compilers
# that are found take all headers, as tests.
find_program(DTRAIN_OTHER_CLANG NAMES clang++-19 clang++-18 clang++-17 clang++-16 clang++
             DOC "A clang 16 or later, for the tests of headers and of compile failures")
find_program(DTRAIN_OTHER_GCC NAMES g++-14 g++-13 g++-12 g++
             DOC "A g++ 12 or later, for the tests of headers and of compile failures")
mark_as_advanced(DTRAIN_OTHER_CLANG DTRAIN_OTHER_GCC)

# dtrain_test_compilers: names; for each one DTRAIN_TEST_COMPILER_<name>.
set(dtrain_test_compilers "")
foreach(candidate IN ITEMS "gcc|${DTRAIN_OTHER_GCC}|12" "clang|${DTRAIN_OTHER_CLANG}|16")
  string(REPLACE "|" ";" candidate "${candidate}")
  list(GET candidate 0 name)
  list(GET candidate 1 program)
  list(GET candidate 2 least)
  if((name STREQUAL "gcc" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
     OR (name STREQUAL "clang" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang"))
    set(program "${CMAKE_CXX_COMPILER}")
  endif()
  if(program)
    execute_process(COMMAND "${program}" -dumpversion OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(version VERSION_GREATER_EQUAL least)
      list(APPEND dtrain_test_compilers ${name})
      set(DTRAIN_TEST_COMPILER_${name} "${program}")
    endif()
  endif()
endforeach()
if(DTRAIN_HAS_CUDA)
  list(APPEND dtrain_test_compilers nvcc)
  set(DTRAIN_TEST_COMPILER_nvcc "${CUDAToolkit_NVCC_EXECUTABLE}")
endif()
list(JOIN dtrain_test_compilers ", " compilers)
message(STATUS "dtrain: headers and compile failures are tested with ${compilers}")

# A header that needs a library which may be missing is compiled where that library is.
set(dtrain_checked_headers ${dtrain_headers})
list(FILTER dtrain_checked_headers EXCLUDE REGEX "\\.cuh$")
if(NOT DTRAIN_HAS_CUDA)
  list(FILTER dtrain_checked_headers EXCLUDE REGEX "/cuda|/nccl")
endif()
if(NOT DTRAIN_HAS_NCCL)
  list(FILTER dtrain_checked_headers EXCLUDE REGEX "/nccl")
endif()
if(NOT DTRAIN_HAS_MPI)
  list(FILTER dtrain_checked_headers EXCLUDE REGEX "/mpi")
endif()

set(dtrain_header_units "")
foreach(header IN LISTS dtrain_checked_headers)
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/headers/${header}.cpp")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n" @ONLY)
  list(APPEND dtrain_header_units "${unit}")
endforeach()

add_library(dtrain_headers_alone OBJECT ${dtrain_header_units})
target_link_libraries(dtrain_headers_alone PRIVATE dtrain::dtrain doctest::doctest dtrain_project_options)
target_compile_options(dtrain_headers_alone PRIVATE -O0 -Wno-unused)

set(dtrain_include_options "-I${PROJECT_SOURCE_DIR}/include")
# A folder that the compiler searches anyway must not be named again: that changes the order of its own headers.
if(NOT DTRAIN_CBLAS_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
  list(APPEND dtrain_include_options -isystem "${DTRAIN_CBLAS_INCLUDE_DIR}")
endif()
set(dtrain_header_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)

# Which headers need which others is settled by that; other compilers take all headers as one unit.
set(text "")
foreach(header IN LISTS dtrain_checked_headers)
  string(APPEND text "#include \"${header}\"\n")
endforeach()
if("clang" IN_LIST dtrain_test_compilers AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/headers/all.cpp")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}${text}" @ONLY)
  add_test(NAME headers/clang COMMAND "${DTRAIN_TEST_COMPILER_clang}" -std=c++20 -fsyntax-only
                                      ${dtrain_header_warnings} ${dtrain_include_options} "${unit}")
  set_tests_properties(headers/clang PROPERTIES LABELS headers TIMEOUT 300)
endif()
if(DTRAIN_HAS_CUDA)
  # A program outside of all templates too: nvcc rewrites its template arguments for the host's compiler.
  file(READ "${CMAKE_CURRENT_LIST_DIR}/nvcc.cpp" program)
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/headers/all.cu")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}${text}${program}" @ONLY)
  add_test(NAME headers/nvcc
           COMMAND "${DTRAIN_TEST_COMPILER_nvcc}" -std=c++20 -x cu -Werror all-warnings ${dtrain_include_options} -c
                   -o "${CMAKE_CURRENT_BINARY_DIR}/headers/all.o" "${unit}")
  set_tests_properties(headers/nvcc PROPERTIES LABELS headers TIMEOUT 300)
endif()
