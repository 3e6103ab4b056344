# Packages for users: a wheel with the library inside, and Debian packages. Both are written to
# build/<preset>/packages; neither needs a network.
#
#   cmake --build build/release --target wheel    pip install of one file; scripts/build_wheel.py
#   cmake --build build/release --target debs     libspillway0, libspillway-dev, spillway, python3-spillway
#
# tests/install installs them on a system without Spillway, and trains.

set(SPILLWAY_PACKAGES_DIR "${PROJECT_BINARY_DIR}/packages")
set(SPILLWAY_MAINTAINER "The Spillway authors <spillway@packages.invalid>" CACHE STRING
    "Whom the Debian packages name as their maintainer")

# ---- The wheel ----

if(SPILLWAY_CRYPTO_ARCHIVE)
  # The library and the tool linked again, with all inside that machines may lack or have in another version. Their
  # other dependencies go beside them.
  set(wheel_link_options LINKER:--strip-all LINKER:--gc-sections -static-libstdc++)
  add_library(spillway_wheel_library SHARED EXCLUDE_FROM_ALL)
  foreach(property SOURCES LINK_LIBRARIES LINK_OPTIONS LINK_DEPENDS LINKER_LANGUAGE VERSION SOVERSION)
    get_target_property(value spillway ${property})
    set_target_properties(spillway_wheel_library PROPERTIES ${property} "${value}")
  endforeach()
  target_link_options(spillway_wheel_library PRIVATE ${wheel_link_options})
  set_target_properties(spillway_wheel_library PROPERTIES
    SPILLWAY_IN_WHEEL ON
    OUTPUT_NAME spillway
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/wheel/lib"
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN")
  set(wheel_tool "")
  if(TARGET spillway_tool AND (NOT SPILLWAY_HAVE_BPF OR (SPILLWAY_BPF_ARCHIVE AND SPILLWAY_ELF_ARCHIVE)))
    add_executable(spillway_wheel_tool EXCLUDE_FROM_ALL $<TARGET_OBJECTS:spillway_tool>
      "${PROJECT_SOURCE_DIR}/cmake/older_glibc.c")
    get_target_property(value spillway_tool LINK_LIBRARIES)
    target_link_libraries(spillway_wheel_tool PRIVATE ${value})
    target_link_options(spillway_wheel_tool PRIVATE ${wheel_link_options})
    set_target_properties(spillway_wheel_tool PROPERTIES
      SPILLWAY_IN_WHEEL ON
      OUTPUT_NAME spillway
      LINKER_LANGUAGE CXX
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/wheel/bin"
      BUILD_WITH_INSTALL_RPATH ON
      INSTALL_RPATH "$ORIGIN/..")
    set(wheel_tool --tool $<TARGET_FILE:spillway_wheel_tool>)
  else()
    message(STATUS "The wheel has no command `spillway`: it takes the tools, and libbpf.a and libelf.a.")
  endif()
  add_custom_target(wheel
    COMMAND "${SPILLWAY_TORCH_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/build_wheel.py"
            --library $<TARGET_SONAME_FILE:spillway_wheel_library> ${wheel_tool}
            --inside "${SPILLWAY_CRYPTO_ARCHIVE}" --inside "${SPILLWAY_BPF_ARCHIVE}" --inside "${SPILLWAY_ELF_ARCHIVE}"
            --version ${PROJECT_VERSION}
            --scratch "${PROJECT_BINARY_DIR}/wheel" --to "${SPILLWAY_PACKAGES_DIR}"
    DEPENDS spillway_wheel_library $<TARGET_NAME_IF_EXISTS:spillway_wheel_tool>
    USES_TERMINAL VERBATIM)
else()
  message(STATUS "No target wheel: it takes libcrypto.a (Debian: libssl-dev).")
endif()

# ---- Debian packages ----

if(NOT SPILLWAY_BUILD_TOOLS)
  message(STATUS "No target debs: one of the packages contains the command-line tool.")
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_DIRECTORY "${SPILLWAY_PACKAGES_DIR}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "${SPILLWAY_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # CPack would put it first in every description
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL "")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

# spillway_deb(<component> PACKAGE <name> SUMMARY <line> TEXT <line>... [<field> <value>]...): packages a component,
# with the licence where Debian expects it.
macro(spillway_deb component)
  set(fields SECTION ARCHITECTURE DEPENDS RECOMMENDS SUGGESTS CONTROL_EXTRA)
  cmake_parse_arguments(DEB "" "PACKAGE;SUMMARY" "TEXT;${fields}" ${ARGN})
  string(TOUPPER "${component}" upper)
  list(APPEND CPACK_COMPONENTS_ALL "${component}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME "${DEB_PACKAGE}")
  list(JOIN DEB_TEXT "\n" text)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "gradients over lossy Ethernet: ${DEB_SUMMARY}
Spillway carries gradients between training workers over ordinary, lossy
Ethernet. When the network is full, it lets a known, bounded share go over the
edge instead of stopping to resend.
.
${text}")
  foreach(field IN LISTS fields)
    if(DEB_${field})
      set(CPACK_DEBIAN_${upper}_PACKAGE_${field} "${DEB_${field}}")
    endif()
  endforeach()
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" RENAME copyright
    DESTINATION "share/doc/${DEB_PACKAGE}" COMPONENT ${component} EXCLUDE_FROM_ALL)
endmacro()

# Under /usr, Debian's libraries are in a folder of their architecture, wherever `cmake --install` would put them.
set(debian_libdir lib)
if(CMAKE_LIBRARY_ARCHITECTURE)
  set(debian_libdir "lib/${CMAKE_LIBRARY_ARCHITECTURE}")
endif()
spillway_install_library("${debian_libdir}" debian_ EXCLUDE_FROM_ALL)
set(library_package libspillway${PROJECT_VERSION_MAJOR})

spillway_deb(debian_library PACKAGE ${library_package} SECTION libs
  SUMMARY "the library"
  TEXT "This package has the shared library.")
spillway_deb(debian_development PACKAGE libspillway-dev SECTION libdevel
  DEPENDS "${library_package} (= ${PROJECT_VERSION})"
  SUMMARY "development files"
  TEXT "This package has the headers for C and C++, and files for CMake and"
       "pkg-config.")
# Excludes the component mpi: one comparison of `bench allreduce` does not justify installing Open MPI.
spillway_deb(tool PACKAGE spillway SECTION net
  RECOMMENDS "iproute2"
  SUGGESTS "python3-spillway, tshark | wireshark"
  SUMMARY "the tool"
  TEXT "This package has the command-line tool: labs of emulated hosts, switches in"
       "the kernel and in user space, a simulator, benchmarks, a doctor for hosts"
       "and networks. A dissector for Wireshark comes with it.")
spillway_deb(python PACKAGE python3-spillway SECTION python ARCHITECTURE all
  DEPENDS "${library_package} (>= ${PROJECT_VERSION}), python3 (>= 3.9)"
  RECOMMENDS "python3-torch"
  CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/cmake/debian/postinst" "${PROJECT_SOURCE_DIR}/cmake/debian/prerm"
  SUMMARY "the PyTorch backend"
  TEXT "This package has the backend of torch.distributed and the hook for"
       "DistributedDataParallel.")

include(CPack)
add_custom_target(debs
  COMMAND "${CMAKE_CPACK_COMMAND}" --config "${PROJECT_BINARY_DIR}/CPackConfig.cmake" -G DEB
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${SPILLWAY_PACKAGES_DIR}/_CPack_Packages"
  DEPENDS spillway spillway_tool
  USES_TERMINAL VERBATIM)
