# Programs for the kernel: C that clang compiles to eBPF, and the skeleton through which C++ loads
# them. Where the tools for that are missing, the rest is built and `spillway switch attach` says so.

set(SPILLWAY_HAVE_BPF OFF)
pkg_check_modules(libbpf IMPORTED_TARGET libbpf>=1.0)
find_program(SPILLWAY_BPF_CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14)
find_program(SPILLWAY_BPFTOOL bpftool HINTS /usr/sbin /sbin)
if(libbpf_FOUND AND SPILLWAY_BPF_CLANG AND SPILLWAY_BPFTOOL)
  set(SPILLWAY_HAVE_BPF ON)
else()
  message(STATUS "Building without eBPF: it takes libbpf-dev (1.0), clang and bpftool.")
endif()

# spillway_bpf(<name>): src/dataplane/bpf/<name>.bpf.c as build/src/dataplane/bpf/<name>.skel.h, made
# by the target spillway_bpf_<name>.
function(spillway_bpf name)
  set(source "${PROJECT_SOURCE_DIR}/src/dataplane/bpf/${name}.bpf.c")
  set(folder "${PROJECT_BINARY_DIR}/src/dataplane/bpf")
  set(object "${folder}/${name}.bpf.o")
  set(skeleton "${folder}/${name}.skel.h")
  file(MAKE_DIRECTORY "${folder}")
  # -mcpu=v3: 32-bit arithmetic and jumps, in every kernel since 5.1. The threshold: everything is
  # inlined, for a program may call nothing while it holds a lock. asm/types.h is the machine's.
  add_custom_command(OUTPUT "${skeleton}"
    COMMAND "${SPILLWAY_BPF_CLANG}" -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Werror
            -mllvm -inline-threshold=100000 -MD -MF "${object}.d" -MT "${skeleton}"
            "-I${PROJECT_SOURCE_DIR}/src" "-I/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}"
            -c "${source}" -o "${object}"
    COMMAND "${SPILLWAY_BPFTOOL}" gen skeleton "${object}" name "${name}_bpf" > "${skeleton}.new"
    COMMAND "${CMAKE_COMMAND}" -E rename "${skeleton}.new" "${skeleton}"
    DEPENDS "${source}"
    DEPFILE "${object}.d"
    COMMENT "Compiling ${name}.bpf.c for the kernel"
    VERBATIM)
  add_custom_target(spillway_bpf_${name} DEPENDS "${skeleton}")
endfunction()
