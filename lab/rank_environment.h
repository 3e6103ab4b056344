// SPDX-License-Identifier: Apache-2.0
//
// The environment of a rank: the variables that torchrun sets, with ranks numbered host by host,
// the addresses of its Spillway peers, and the properties of its host's link. The ranks of a host
// share its address and differ by port.
//
//   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK MASTER_ADDR MASTER_PORT
//   SPILLWAY_HOST_NAME    "host0"
//   SPILLWAY_PEERS        "addr:port,addr:port,...": where to send to each rank, in rank order
//   SPILLWAY_LISTEN       "addr:port": where the rank receives
//   SPILLWAY_LINK_RATE    of the host's link, in bits per second
//   SPILLWAY_MTU          of its interface
//   SPILLWAY_TRIM_BYTES   size to which the fabric trims frames; 0: it does not trim
//   SPILLWAY_LAB_ID       id of the lab; processes that have it were started by that lab
//   GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME    eth0, or lo without namespaces
//   OMP_NUM_THREADS=1     unless it is set
//   PYTHONPATH SPILLWAY_LIBRARY    of the package that belongs to this tool, unless they are set
//
// The last two are searched for around the tool, so that `import spillway` works:
//
//   as built      the source tree's python/, up to four folders above the tool; lib/ beside bin/
//   as installed  PREFIX/lib/python3/dist-packages; PREFIX/lib, lib64 or lib/<architecture>
//
// A package under /usr is not named, because Python finds it by itself. Naming its folder would put
// all packages there before those of a virtual environment.
//
// Environments are values, "KEY=value" each; the environment of this process does not change. Any
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lab/network/links.h"

namespace spillway::lab {

struct EnvironmentOptions {
  std::uint16_t ranks_per_host = 1;
  std::uint16_t master_port = 29500;
  std::string lab_id{};
  bool own_interface = true;              // false: hosts share loopback
  std::vector<std::string> additional{};  // "KEY=value"; override all others
};

// "KEY=value" each.
std::vector<std::string> rank_variables(const HostPlan& plan, std::size_t rank,
                                        const EnvironmentOptions& options);

// The environment of this process.
std::vector<std::string> current_environment();

bool is_set(std::string_view key, const std::vector<std::string>& environment);

// OMP_NUM_THREADS=1 unless `environment` sets it, as torchrun does for several ranks on a machine.
// A lab's ranks share its cores, and libraries with spinning threads would take CPU time from the
// emulated network.
std::vector<std::string> thread_variables(const std::vector<std::string>& environment);

// Returns `environment` with `variables` set in it, in their order.
std::vector<std::string> with_variables(std::vector<std::string> environment,
                                        const std::vector<std::string>& variables);

// PYTHONPATH and SPILLWAY_LIBRARY, as "KEY=value", for the tool at that path. Leaves out what
// `environment` already sets and what does not exist.
std::vector<std::string> python_variables(const std::filesystem::path& tool,
                                          const std::vector<std::string>& environment);

// PYTHONPATH, as "KEY=value": that of `environment`, preceded by the folder whose sitecustomize.py
// tells a lab what a PyTorch script does (python/spillway/lab). Empty if there is no such folder.
std::vector<std::string> watch_variables(const std::filesystem::path& tool,
                                         const std::vector<std::string>& environment);

// The executable of this process.
std::filesystem::path path_of_this_tool();

}  // namespace spillway::lab
