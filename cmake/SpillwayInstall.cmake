# The layout that `cmake --install` makes: the library with headers, CMake package and pkg-config file, the command-line
# tool, the Wireshark dissector, and the licence. tests/install builds programs against the result.
# SpillwayPackages.cmake makes packages of the components.

include(CMakePackageConfigHelpers)

if(TARGET spillway_tool)
  install(TARGETS spillway_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tool)
  install(FILES "${PROJECT_SOURCE_DIR}/tools/wireshark/spillway.lua"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/spillway/wireshark" COMPONENT tool)
endif()
# tools/cli/allreduce_mpi.cc looks for it here.
if(TARGET spillway_mpi_allreduce)
  install(TARGETS spillway_mpi_allreduce RUNTIME DESTINATION "libexec/spillway" COMPONENT mpi)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT licence)

if(NOT TARGET spillway)
  return()
endif()

# spillway_install_library(<libdir> <prefix> [EXCLUDE_FROM_ALL]): installs the components <prefix>library and
# <prefix>development, with the library in <libdir>.
#
# The CMake and pkg-config files locate the library relative to their own folder. So they are generated for that
# folder, and the tree may be installed with --prefix or moved.
function(spillway_install_library libdir prefix)
  set(component COMPONENT ${prefix}development ${ARGN})
  set(made "${PROJECT_BINARY_DIR}/install/${prefix}development")
  set(cmakedir "${libdir}/cmake/spillway")

  install(TARGETS spillway EXPORT ${prefix}spillwayTargets
    LIBRARY DESTINATION "${libdir}" COMPONENT ${prefix}library NAMELINK_COMPONENT ${prefix}development
    ${ARGN})
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/spillway"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" ${component}
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

  install(EXPORT ${prefix}spillwayTargets FILE spillwayTargets.cmake NAMESPACE spillway::
    DESTINATION "${cmakedir}" ${component})
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/spillwayConfig.cmake.in" "${made}/spillwayConfig.cmake"
    INSTALL_DESTINATION "${cmakedir}" NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(
    "${made}/spillwayConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
  install(FILES "${made}/spillwayConfig.cmake" "${made}/spillwayConfigVersion.cmake"
    DESTINATION "${cmakedir}" ${component})

  # cmake_path() leaves an absolute folder as it is.
  set(pkgconfigdir "${libdir}/pkgconfig")
  cmake_path(ABSOLUTE_PATH pkgconfigdir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE from)
  file(RELATIVE_PATH SPILLWAY_PKGCONFIG_TO_PREFIX "${from}" "${CMAKE_INSTALL_PREFIX}")
  cmake_path(APPEND SPILLWAY_PKGCONFIG_LIBDIR "\${prefix}" "${libdir}")
  cmake_path(APPEND SPILLWAY_PKGCONFIG_INCLUDEDIR "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/spillway.pc.in" "${made}/spillway.pc" @ONLY)
  install(FILES "${made}/spillway.pc" DESTINATION "${pkgconfigdir}" ${component})
endfunction()

spillway_install_library("${CMAKE_INSTALL_LIBDIR}" "")
