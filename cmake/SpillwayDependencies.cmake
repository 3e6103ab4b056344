# Spillway's dependencies. docs/adr/0002-dependencies.md says why each was chosen.

find_package(PkgConfig REQUIRED)

find_package(fmt REQUIRED)
if(SPILLWAY_BUILD_TOOLS)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
endif()
if(SPILLWAY_BUILD_EMULATE)
  find_package(ZLIB REQUIRED)
endif()
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)

# libcrypto: the shared library, or linked in if a target has the property SPILLWAY_IN_WHEEL. In a process with Python's
# libcrypto.so.3, the loader would take a second one for the first.
find_library(SPILLWAY_CRYPTO_ARCHIVE libcrypto.a HINTS "${OPENSSL_ROOT_DIR}/lib")
mark_as_advanced(SPILLWAY_CRYPTO_ARCHIVE)
add_library(spillway_crypto INTERFACE)
target_include_directories(spillway_crypto SYSTEM INTERFACE "${OPENSSL_INCLUDE_DIR}")
target_link_libraries(spillway_crypto INTERFACE
  "$<IF:$<BOOL:$<TARGET_PROPERTY:SPILLWAY_IN_WHEEL>>,${SPILLWAY_CRYPTO_ARCHIVE},OpenSSL::Crypto>")

set(SPILLWAY_HAVE_HIGHWAY OFF)
if(SPILLWAY_WITH_HIGHWAY)
  pkg_check_modules(hwy IMPORTED_TARGET libhwy)
  if(hwy_FOUND)
    set(SPILLWAY_HAVE_HIGHWAY ON)
  else()
    message(STATUS "Highway not found: building the scalar kernels only. "
                   "Install libhwy-dev for the SIMD ones.")
  endif()
endif()

include(SpillwayBpf)

if(SPILLWAY_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
