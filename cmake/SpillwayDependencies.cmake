# What Spillway stands on. docs/adr/0002-dependencies.md says why each was chosen.

find_package(PkgConfig REQUIRED)

find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)

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
