# cmake -DKIND=gcc|clang|nvcc -DCOMPILER=... -DSOURCE=... -DOPTIONS=... -P compile_fail.cmake
#
# SOURCE begins with lines `// expect: text`, one at least of which begins with `dtrain: `. Compiling it must fail and
# print every text; with DTRAIN_COMPILE_FAIL_FIXED defined, compiling it must succeed. A line `// expect gcc: text` or
# `// expect clang: text` is for that compiler alone.
#
# `Concept<6, 4>` names the failing atom with its numbers. clang prints it so; g++ prints `concept Concept` and
# `[with A = 6; B = 4]`, which is looked for where the short form is not found. nvcc leaves out the atom: there only
# the sentences are looked for.
cmake_minimum_required(VERSION 3.25)

if(KIND STREQUAL "gcc")
  set(command "${COMPILER}" -std=c++20 -fsyntax-only -fdiagnostics-plain-output ${OPTIONS} "${SOURCE}")
elseif(KIND STREQUAL "clang")
  set(command "${COMPILER}" -std=c++20 -fsyntax-only -fno-color-diagnostics -fno-caret-diagnostics -fno-elide-type
              ${OPTIONS} "${SOURCE}")
elseif(KIND STREQUAL "nvcc")
  set(command "${COMPILER}" -std=c++20 -x cu --cuda -o /dev/null ${OPTIONS} "${SOURCE}")
else()
  message(FATAL_ERROR "KIND is '${KIND}'; it must be gcc, clang or nvcc")
endif()

# White space is squeezed, since compilers differ in it.
function(squeeze variable)
  string(REGEX REPLACE "[ \t\r\n]+" " " text "${${variable}}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# Brackets and semicolons mean lists to CMake, and are legal in C++ sentences.
function(protect variable)
  string(REPLACE ";" "," text "${${variable}}")
  string(REPLACE "[" "(" text "${text}")
  string(REPLACE "]" ")" text "${text}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

file(READ "${SOURCE}" text LIMIT 4000)
protect(text)
string(REGEX MATCHALL "// expect( ${KIND})?: [^\n]+" lines "${text}")
set(expected "")
set(sentences 0)
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^// expect( ${KIND})?: " "" line "${line}")
  string(STRIP "${line}" line)
  if(line MATCHES "^dtrain: ")
    math(EXPR sentences "${sentences} + 1")
    list(APPEND expected "${line}")
  elseif(NOT KIND STREQUAL "nvcc")
    list(APPEND expected "${line}")
  endif()
endforeach()
if(sentences EQUAL 0)
  message(FATAL_ERROR "${SOURCE} expects no sentence: it must begin with a line '// expect: dtrain: ...'")
endif()
if(NOT text MATCHES "DTRAIN_COMPILE_FAIL_FIXED")
  message(FATAL_ERROR "${SOURCE} has no mended form: it must hold '#ifndef DTRAIN_COMPILE_FAIL_FIXED'")
endif()

# Sets `found`: whether g++'s form of the atom `Concept<1, 2>`, or of its beginning, is in `output`.
function(find_atom_of_gcc atom)
  set(found FALSE PARENT_SCOPE)
  if(NOT atom MATCHES "^([A-Za-z_]+)<(.*)$")
    return()
  endif()
  set(numbers "${CMAKE_MATCH_2}")
  if(NOT output MATCHES "concept ([a-z_]+::)*${CMAKE_MATCH_1}[^A-Za-z_]")
    return()
  endif()
  string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
  foreach(number IN LISTS numbers)
    if(NOT output MATCHES "= ${number}[^0-9]")
      return()
    endif()
  endforeach()
  set(found TRUE PARENT_SCOPE)
endfunction()

execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiled, and must not")
endif()
set(printed "${output}")
protect(output)
squeeze(output)
foreach(line IN LISTS expected)
  squeeze(line)
  string(FIND "${output}" "${line}" position)
  if(position EQUAL -1 AND KIND STREQUAL "gcc")
    find_atom_of_gcc("${line}")
    if(found)
      continue()
    endif()
  endif()
  if(position EQUAL -1)
    message(FATAL_ERROR "${SOURCE}: the compiler did not print\n  ${line}\nIt printed:\n${printed}")
  endif()
endforeach()

if(NOT KIND STREQUAL "nvcc")
  execute_process(COMMAND ${command} -DDTRAIN_COMPILE_FAIL_FIXED RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${SOURCE}: the mended form must compile, and does not:\n${output}")
  endif()
endif()
