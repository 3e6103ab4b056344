// SPDX-License-Identifier: Apache-2.0
//
// Checks of this host: its system, rights, interfaces, sockets and GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "gpu/device.h"
#include "net/sockets.h"
#include "tools/doctor/finding.h"

namespace spillway::doctor {

// ------------------------------------------------------------------ the host

// All checks of this host, in the order in which they are shown. They take milliseconds, or seconds
// if GPU kernels must be compiled. They send packets over loopback only and change nothing but the
// kernel cache.

Findings check_this_host();

// The files in which the kernel describes the host, below a root folder: "/" for the host itself,
// any other folder for a test. Only reads. Any thread.

class HostFiles {
 public:
  explicit HostFiles(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // Returns the file without its last line's end, at most 64 KiB; nothing if it cannot be read.
  // `path` is relative to the root: "proc/mounts".
  std::optional<std::string> read(std::string_view path) const;
  // Reads a file that holds one number.
  std::optional<unsigned long long> read_number(std::string_view path) const;
  bool exists(std::string_view path) const;

 private:
  std::filesystem::path root_;
};

// The kernel and the software around it.
//
// Release: Spillway runs on any kernel; features that older ones lack only cost speed. UDP_SEGMENT
// (GSO) came with 4.18, UDP_GRO with 5.0, and what the eBPF switch needs with 5.15. Clock: pacing,
// timers and round-trip times rely on it. A processor's counter is read without a system call;
// timer chips take microseconds per read. eBPF: programs need a bpffs to be pinned in, and the
// kernel's types (BTF). Tools: labs create their links with iproute2.
//
// All functions but measure_clock() judge the files they are given, so tests can make hosts up. Any
// thread.

Finding check_kernel(const HostFiles& files);

Finding check_clock_source(const HostFiles& files);

struct ClockQuality {
  base::Duration resolution;  // of CLOCK_MONOTONIC
  base::Duration read_cost;   // mean of many reads; reported, not judged
};

ClockQuality measure_clock();
Finding check_clock(const ClockQuality& quality);

Finding check_bpffs(const HostFiles& files);
Finding check_btf(const HostFiles& files);

// `path`: folders separated by colons, as in the variable PATH.
Finding check_iproute2(std::string_view path);

// The capabilities that this process has, and what each is good for: CAP_NET_ADMIN (queues beyond
// the system's limits, eBPF on interfaces), CAP_NET_RAW (raw frames from an interface), CAP_BPF
// (eBPF programs). None is needed to send and receive, so a missing one is a note.

// One bit per capability, as in the line CapEff of /proc/self/status.
using CapabilitySet = std::uint64_t;

std::optional<CapabilitySet> parse_effective_capabilities(std::string_view status);
CapabilitySet effective_capabilities(const HostFiles& files);  // empty set if it cannot be read

bool has_net_admin(CapabilitySet set);
bool has_net_raw(CapabilitySet set);
bool has_bpf(CapabilitySet set);  // CAP_SYS_ADMIN includes it

Findings check_capabilities(CapabilitySet set);

// Whether an unprivileged user may create namespaces, which a lab without root needs.
Finding check_user_namespaces(const HostFiles& files);

// Whether gradients in the memory of this host's GPUs are encoded there. That needs a driver and a
// run-time compiler that knows the GPU; without them, values are copied to the host and the CPU
// encodes them. Without a cache folder, every process compiles the kernels again.
//
// check_gpus() only judges its argument, so tests can make hosts up. inspect_gpus() starts the
// driver, which may take a second, and compiles kernels that the cache lacks. Any thread.

struct GpuState {
  base::Status driver{};                   // why there is no driver
  std::vector<gpu::DeviceInfo> devices{};  // devices that the driver sees
  std::vector<base::Status> compilers{};   // by device: why its kernels cannot be compiled
  std::string cache_folder{};              // empty: no cache
};

GpuState inspect_gpus(const base::Environment& environment);

Findings check_gpus(const GpuState& state);

// ------------------------------------------------------------------ its network

// The host's network interfaces: how long their frames may be, and whether the card merges packets.
// LRO merges arriving packets into longer ones and forgets their boundaries, so trimmed packets end
// up inside others.

struct InterfaceState {
  std::string name;
  unsigned mtu = 0;
  bool lro = false;
};

// The interfaces that are up in the caller's network namespace, without loopback.
std::vector<InterfaceState> up_interfaces();

// Returns at least one finding.
Findings check_interfaces(std::span<const InterfaceState> interfaces);

// The abilities of this host's sockets: how long their queues may be, which UDP offloads they have,
// and whether DSCP, ECN and arrival time stamps come through.
//
// A process with CAP_NET_ADMIN gets the queues it asks for, whatever the system's limits.
// Marks are tried on loopback, over IPv4 and IPv6, so that only this host affects the result.
//
// check_...() judge their arguments and do no I/O beyond HostFiles. try_loopback() sends a few
// datagrams to itself and waits at most half a second for each. Any thread.

// Bytes of socket buffer that a rank asks for.
std::size_t wanted_socket_buffer();

Findings check_socket_limits(const HostFiles& files, std::size_t wanted, bool may_exceed);

// `available`: the offloads that the kernel has.
Findings check_offloads(const net::Offloads& available);

struct LoopbackTrial {
  bool opened = false;  // the host has this address family
  unsigned sent = 0;    // values of the TOS byte
  unsigned kept = 0;    // values that arrived unchanged
  bool stamped = false;
};

LoopbackTrial try_loopback(bool ipv6);

// The finding's check is "marks-ipv4" or "marks-ipv6".
Finding check_loopback_marks(const LoopbackTrial& trial, bool ipv6);
Finding check_receive_stamps(const LoopbackTrial& trial);

}  // namespace spillway::doctor
