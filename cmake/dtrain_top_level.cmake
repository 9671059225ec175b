# Defaults of a build of this project itself; none of them reaches a project that includes it.
get_property(dtrain_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT CMAKE_BUILD_TYPE AND NOT dtrain_multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)

find_program(DTRAIN_CCACHE ccache DOC "ccache, used when found")
find_program(DTRAIN_MOLD mold DOC "The linker mold, used when found")
mark_as_advanced(DTRAIN_CCACHE DTRAIN_MOLD)
if(DTRAIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the sources are hashed as relative ones: clones in different folders share what they compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
                                  CCACHE_NOHASHDIR=true CCACHE_SLOPPINESS=pch_defines,time_macros "${DTRAIN_CCACHE}")
endif()
if(DTRAIN_MOLD AND NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
  add_link_options(-fuse-ld=mold)
endif()
