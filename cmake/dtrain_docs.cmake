# The reference, by Doxygen; a warning is an error.
find_program(DTRAIN_DOXYGEN doxygen DOC "Doxygen, for the target dtrain_docs")
mark_as_advanced(DTRAIN_DOXYGEN)
if(DTRAIN_DOXYGEN)
  configure_file(docs/Doxyfile.in "${PROJECT_BINARY_DIR}/docs/Doxyfile" @ONLY)
  add_custom_target(
    dtrain_docs
    COMMAND "${DTRAIN_DOXYGEN}" "${PROJECT_BINARY_DIR}/docs/Doxyfile"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    COMMENT "Reference by Doxygen in ${PROJECT_BINARY_DIR}/docs/html"
    VERBATIM)
else()
  message(STATUS "dtrain: Doxygen was not found, so there is no target dtrain_docs")
endif()
