# What `cmake --install` puts where: the library with its headers, a CMake package and a pkg-config
# file, the command-line tool, the Wireshark dissector, and the licence. tests/install builds programs
# against the result.

include(CMakePackageConfigHelpers)
set(SPILLWAY_INSTALL_CMAKEDIR "${CMAKE_INSTALL_LIBDIR}/cmake/spillway")
set(SPILLWAY_INSTALL_PKGCONFIGDIR "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(TARGET spillway_tool)
  install(TARGETS spillway_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
# Where the tool looks for it: src/cli/allreduce_mpi.cc.
if(TARGET spillway_mpi_allreduce)
  install(TARGETS spillway_mpi_allreduce RUNTIME DESTINATION "libexec/spillway")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/tools/wireshark/spillway.lua"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/spillway/wireshark")

if(NOT TARGET spillway)
  return()
endif()

install(TARGETS spillway EXPORT spillwayTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/spillway"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

install(EXPORT spillwayTargets NAMESPACE spillway:: DESTINATION "${SPILLWAY_INSTALL_CMAKEDIR}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/spillwayConfig.cmake.in" "${PROJECT_BINARY_DIR}/spillwayConfig.cmake"
  INSTALL_DESTINATION "${SPILLWAY_INSTALL_CMAKEDIR}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/spillwayConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/spillwayConfig.cmake" "${PROJECT_BINARY_DIR}/spillwayConfigVersion.cmake"
  DESTINATION "${SPILLWAY_INSTALL_CMAKEDIR}")

# The pkg-config file finds the prefix from where it lies, so the tree may be installed with
# --prefix or moved. cmake_path(APPEND) leaves an absolute folder as it is.
file(RELATIVE_PATH SPILLWAY_PKGCONFIG_TO_PREFIX
  "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
cmake_path(APPEND SPILLWAY_PKGCONFIG_LIBDIR "\${prefix}" "${CMAKE_INSTALL_LIBDIR}")
cmake_path(APPEND SPILLWAY_PKGCONFIG_INCLUDEDIR "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/spillway.pc.in" "${PROJECT_BINARY_DIR}/spillway.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/spillway.pc" DESTINATION "${SPILLWAY_INSTALL_PKGCONFIGDIR}")
