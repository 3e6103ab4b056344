# How every Spillway target is compiled, and how a source folder becomes a library.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
# -g1: names and lines for traces and profiles; variables are for the debug preset, and cost a quarter
# of the build.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(SPILLWAY_FASTEST -O3)  # for files whose loops earn it
if(SPILLWAY_SANITIZE)
  # Sanitizers look at what the code does, not how fast: -O1 compiles in two thirds of the time.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
  set(SPILLWAY_FASTEST -O1)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Collecting garbage is a twelfth of the build; below this many KB g++ does without.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(spillway_options INTERFACE)
target_compile_options(spillway_options INTERFACE
  -Wall -Wextra
  # Encoders must produce the same bits on every machine: no fused multiply-add behind our back.
  -ffp-contract=off)
# Debian 12's compilers, which CI has. What others warn of is no reason to stop somebody's build: g++ 13
# sees overflows in fmt 9 where there are none.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\.")
  target_compile_options(spillway_options INTERFACE -Werror)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^14\\.")
  target_compile_options(spillway_options INTERFACE -Werror)
endif()
if(SPILLWAY_SANITIZE)
  target_compile_options(spillway_options INTERFACE
    -fsanitize=${SPILLWAY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(spillway_options INTERFACE -fsanitize=${SPILLWAY_SANITIZE})
  target_compile_definitions(spillway_options INTERFACE SPILLWAY_SANITIZED)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code confuses g++'s analysis: it warns of members that were assigned.
    target_compile_options(spillway_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

if(SPILLWAY_BUILD_FUZZERS)
  # Fuzzers steer by what the library's own code covers.
  target_compile_options(spillway_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(spillway_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# A folder in one go: headers and templates are most of what the compiler reads and makes, and are made once then. Halves
# take a fifth more. A file with compile options of its own is compiled alone.
option(SPILLWAY_JOIN_SOURCES "Compile sources of one folder together" ON)
function(spillway_join target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SPILLWAY_JOIN_SOURCES} UNITY_BUILD_BATCH_SIZE 0)
endfunction()

# spillway_folder(<name> [PROGRAM <target>] [COLD] [USES <folder>...] [WITHOUT <file>... | ONLY <file>...])
#
# The library spillway_<name>, or the program <target>, made of one folder under src/: all of its *.cc but the
# tests, those named after WITHOUT left out, or only those named after ONLY. USES names the folders it may include;
# tests/check_layering.py holds the includes to the same list. COLD: nothing in it runs per packet or per value, so it
# is optimised less (-O1), which compiles in three quarters of the time.
function(spillway_folder name)
  cmake_parse_arguments(ARG "COLD" "PROGRAM" "USES;WITHOUT;ONLY" ${ARGN})
  if(ARG_ONLY)
    set(sources ${ARG_ONLY})
  else()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" ${name}/*.cc)
    list(FILTER sources EXCLUDE REGEX "_test(ing)?\\.cc$")
    list(REMOVE_ITEM sources ${ARG_WITHOUT} "")
  endif()
  if(ARG_PROGRAM)
    set(target ${ARG_PROGRAM})
    add_executable(${target} ${sources})
  else()
    set(target spillway_${name})
    add_library(${target} STATIC ${sources})
  endif()
  target_include_directories(${target} PUBLIC
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_BINARY_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${target} PUBLIC spillway_options)
  if(ARG_COLD)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  foreach(used IN LISTS ARG_USES)
    target_link_libraries(${target} PUBLIC spillway_${used})
  endforeach()
  spillway_join(${target})
endfunction()
