# Compile options of all Spillway targets, and the function that makes a library of a source folder.

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
# -g1: names and lines for traces and profiles. Variables are left to the debug preset: they cost a quarter of the
# build time.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(SPILLWAY_FASTEST -O3)  # for files whose loops benefit
if(SPILLWAY_SANITIZE)
  # Sanitizer builds need no speed, and -O1 compiles in two thirds of the time.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
  set(SPILLWAY_FASTEST -O1)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Garbage collection takes a twelfth of the build time; g++ skips it below this many KB.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(spillway_options INTERFACE)
target_compile_options(spillway_options INTERFACE
  -Wall -Wextra
  # Encoders must produce the same bits on every machine, so the compiler must not fuse multiply-adds.
  -ffp-contract=off)
# Only for Debian 12's compilers, which CI uses. Other compilers' warnings must not break a user's build: g++ 13
# reports overflows in fmt 9 that do not exist.
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
    # Instrumented code confuses g++'s analysis: it warns about members that were assigned.
    target_compile_options(spillway_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

if(SPILLWAY_BUILD_FUZZERS)
  # Fuzzers are guided by the coverage of the library's own code.
  target_compile_options(spillway_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(spillway_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Compiles a folder as one unit: headers and templates are most of the compiler's work, and are then processed once.
# Two units per folder take a fifth longer. A file with its own compile options is compiled alone.
option(SPILLWAY_JOIN_SOURCES "Compile sources of one folder together" ON)
function(spillway_join target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SPILLWAY_JOIN_SOURCES} UNITY_BUILD_BATCH_SIZE 0)
endfunction()

# spillway_folder(<name> [IN <folder>] [EXCEPT <folder>...] [PROGRAM <target>] [COLD] [USES <name>...]
#                 [WITHOUT <file>... | ONLY <file>...])
#
# Makes the library spillway_<name>, or the program <target>, from the folder <name>, or <folder>, below this one: all of
# its *.cc except tests and the EXCEPT folders, without the WITHOUT files, or only the ONLY files. USES names the
# folders that it may include; tests/check_layering.py holds includes to the same list. COLD: none of it runs per
# packet or per value, so it is compiled with -Og, which takes two thirds of the time.
function(spillway_folder name)
  cmake_parse_arguments(ARG "COLD" "IN;PROGRAM" "EXCEPT;USES;WITHOUT;ONLY" ${ARGN})
  if(NOT ARG_IN)
    set(ARG_IN ${name})
  endif()
  if(ARG_ONLY)
    set(sources ${ARG_ONLY})
  else()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}"
      "${CMAKE_CURRENT_SOURCE_DIR}/${ARG_IN}/*.cc")
    list(FILTER sources EXCLUDE REGEX "_test(ing)?\\.cc$")
    foreach(folder IN LISTS ARG_EXCEPT)
      list(FILTER sources EXCLUDE REGEX "^${folder}/")
    endforeach()
    list(REMOVE_ITEM sources ${ARG_WITHOUT} "")
  endif()
  if(ARG_PROGRAM)
    set(target ${ARG_PROGRAM})
    add_executable(${target} ${sources})
  else()
    set(target spillway_${name})
    add_library(${target} STATIC ${sources})
  endif()
  # Folders of the library are included from lib/, all others from the top.
  target_include_directories(${target} PUBLIC
    "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/lib" "${PROJECT_BINARY_DIR}" "${PROJECT_BINARY_DIR}/lib"
    "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${target} PUBLIC spillway_options)
  if(ARG_COLD)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-Og>)
  endif()
  if(NOT SPILLWAY_BUILD_EMULATE)
    list(REMOVE_ITEM ARG_USES emulate)  # the tool is then built without that command
  endif()
  foreach(used IN LISTS ARG_USES)
    target_link_libraries(${target} PUBLIC spillway_${used})
  endforeach()
  # Where unit tests look for *_test.cc.
  set_target_properties(${target} PROPERTIES
    SPILLWAY_FOLDER "${CMAKE_CURRENT_SOURCE_DIR}/${ARG_IN}" SPILLWAY_EXCEPT "${ARG_EXCEPT}")
  spillway_join(${target})
endfunction()
