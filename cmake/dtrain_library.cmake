# The library: dtrain::dtrain, its headers, its install rules.
file(GLOB_RECURSE dtrain_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include"
     "${PROJECT_SOURCE_DIR}/include/dtrain/*.hpp" "${PROJECT_SOURCE_DIR}/include/dtrain/*.cuh")
list(TRANSFORM dtrain_headers PREPEND "${PROJECT_SOURCE_DIR}/include/" OUTPUT_VARIABLE dtrain_header_paths)

add_library(dtrain INTERFACE)
add_library(dtrain::dtrain ALIAS dtrain)
target_sources(dtrain INTERFACE FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${dtrain_header_paths})
target_compile_features(dtrain INTERFACE cxx_std_20)
target_link_libraries(dtrain INTERFACE Threads::Threads dtrain::cblas)

message(STATUS "dtrain ${PROJECT_VERSION}")
message(STATUS "  BLAS  ${dtrain_report_blas}")
message(STATUS "  CUDA  ${dtrain_report_cuda} (used by: the check that nvcc compiles the headers)")
message(STATUS "  NCCL  ${dtrain_report_nccl} (used by: nothing yet)")
message(STATUS "  MPI   ${dtrain_report_mpi} (used by: the benchmark collectives_mpi)")

if(DTRAIN_INSTALL)
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  set(dtrain_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/dtrain")
  install(TARGETS dtrain EXPORT dtrain_targets FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT dtrain_targets NAMESPACE dtrain:: FILE dtrain-targets.cmake DESTINATION "${dtrain_package_dir}")
  configure_package_config_file(cmake/dtrain-config.cmake.in "${PROJECT_BINARY_DIR}/dtrain-config.cmake"
                                INSTALL_DESTINATION "${dtrain_package_dir}" NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/dtrain-config-version.cmake"
                                   COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
  install(FILES "${PROJECT_BINARY_DIR}/dtrain-config.cmake" "${PROJECT_BINARY_DIR}/dtrain-config-version.cmake"
                cmake/dtrain_dependencies.cmake
          DESTINATION "${dtrain_package_dir}")
endif()
