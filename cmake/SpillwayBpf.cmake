# Kernel programs: clang compiles C to eBPF, and C++ loads it through a generated skeleton.
#
# switch/dataplane/bpf/compiled holds clang's output for machines without clang or bpftool: eBPF is the same on every
# little-endian machine (docs/adr/0016). Without libbpf the rest is built, and `spillway switch attach` reports it.

set(SPILLWAY_HAVE_BPF OFF)
option(SPILLWAY_BPF_SHIPPED "Take the kernel's programs as shipped, even where clang could compile them" OFF)
pkg_check_modules(libbpf IMPORTED_TARGET libbpf>=1.0)
find_program(SPILLWAY_BPF_CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14)
find_program(SPILLWAY_BPFTOOL bpftool HINTS /usr/sbin /sbin)
set(SPILLWAY_BPF_COMPILES OFF)
if(SPILLWAY_BPF_CLANG AND SPILLWAY_BPFTOOL AND NOT SPILLWAY_BPF_SHIPPED)
  set(SPILLWAY_BPF_COMPILES ON)
endif()
if(NOT libbpf_FOUND)
  message(STATUS "Building without eBPF: it takes libbpf-dev (1.0).")
else()
  set(SPILLWAY_HAVE_BPF ON)
  # Shared, or linked in with what it needs if a target is SPILLWAY_IN_WHEEL.
  find_library(SPILLWAY_BPF_ARCHIVE libbpf.a HINTS "${libbpf_LIBRARY_DIRS}")
  find_library(SPILLWAY_ELF_ARCHIVE libelf.a)
  mark_as_advanced(SPILLWAY_BPF_ARCHIVE SPILLWAY_ELF_ARCHIVE)
  add_library(spillway_libbpf INTERFACE)
  target_include_directories(spillway_libbpf SYSTEM INTERFACE "${libbpf_INCLUDE_DIRS}")
  target_link_libraries(spillway_libbpf INTERFACE
    "$<IF:$<BOOL:$<TARGET_PROPERTY:SPILLWAY_IN_WHEEL>>,${SPILLWAY_BPF_ARCHIVE};${SPILLWAY_ELF_ARCHIVE};z,PkgConfig::libbpf>")
  if(NOT SPILLWAY_BPF_COMPILES)
    message(STATUS "The kernel's programs are taken as shipped (switch/dataplane/bpf/compiled).")
  endif()
endif()

# spillway_bpf(<name>): makes build/switch/dataplane/bpf/<name>.skel.h from switch/dataplane/bpf/<name>.bpf.c, or copies the
# shipped one. The target is spillway_bpf_<name>.
function(spillway_bpf name)
  set(folder "${PROJECT_BINARY_DIR}/switch/dataplane/bpf")
  file(MAKE_DIRECTORY "${folder}")
  if(SPILLWAY_BPF_COMPILES)
    spillway_compile_bpf(${name} "${folder}")
  else()
    configure_file("${PROJECT_SOURCE_DIR}/switch/dataplane/bpf/compiled/${name}.skel.h.in"
                   "${folder}/${name}.skel.h" COPYONLY)
    add_custom_target(spillway_bpf_${name})
  endif()
endfunction()

function(spillway_compile_bpf name folder)
  set(source "${PROJECT_SOURCE_DIR}/switch/dataplane/bpf/${name}.bpf.c")
  set(object "${folder}/${name}.bpf.o")
  set(skeleton "${folder}/${name}.skel.h")
  # -mcpu=v3: 32-bit arithmetic and jumps, in every kernel since 5.1. The threshold inlines everything, because a
  # program may not call a function while it holds a lock. The target's include folder provides asm/types.h. The two
  # path options keep this machine's folders out of the shipped files. `gen object` drops what only debuggers read.
  add_custom_command(OUTPUT "${skeleton}"
    COMMAND "${SPILLWAY_BPF_CLANG}" -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Werror
            -mllvm -inline-threshold=100000 -MD -MF "${object}.d" -MT "${skeleton}"
            "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=" -fdebug-compilation-dir=.
            "-I${PROJECT_SOURCE_DIR}" "-I${PROJECT_SOURCE_DIR}/lib" "-I/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}"
            -c "${source}" -o "${object}"
    COMMAND "${SPILLWAY_BPFTOOL}" gen object "${object}.short" "${object}"
    COMMAND "${SPILLWAY_BPFTOOL}" gen skeleton "${object}.short" name "${name}_bpf"
            > "${skeleton}.new"
    COMMAND "${CMAKE_COMMAND}" -E rename "${skeleton}.new" "${skeleton}"
    DEPENDS "${source}"
    DEPFILE "${object}.d"
    COMMENT "Compiling ${name}.bpf.c for the kernel"
    VERBATIM)
  add_custom_target(spillway_bpf_${name} DEPENDS "${skeleton}")
endfunction()

# spillway_ship_bpf(<name>...): adds the target spillway_bpf_ship, which copies the compiled programs to the shipped
# folder.
function(spillway_ship_bpf)
  if(NOT SPILLWAY_BPF_COMPILES)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  list(TRANSFORM ARGN PREPEND spillway_bpf_ OUTPUT_VARIABLE targets)
  add_custom_target(spillway_bpf_ship
    COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/scripts/bpf_programs.py" ship
            --built "${PROJECT_BINARY_DIR}/switch/dataplane/bpf" --clang "${SPILLWAY_BPF_CLANG}"
    DEPENDS ${targets}
    VERBATIM)
endfunction()
