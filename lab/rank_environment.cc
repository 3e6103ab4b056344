// SPDX-License-Identifier: Apache-2.0
#include "lab/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

namespace spillway::lab {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFoldersUp = 4;
constexpr const char* kLibrary = "libspillway.so.0";  // major version of the C interface

std::string_view key_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

void set(std::vector<std::string>& environment, std::string variable) {
  const std::string_view key = key_of(variable);
  const auto there = std::find_if(environment.begin(), environment.end(),
                                  [key](const std::string& other) { return key_of(other) == key; });
  if (there == environment.end()) {
    environment.push_back(std::move(variable));
  } else {
    *there = std::move(variable);
  }
}

net::SocketAddress address_of_rank(const net::SocketAddress& first, std::size_t local_rank) {
  return first.with_port(static_cast<std::uint16_t>(first.port() + local_rank));
}

std::string peers_of(const HostPlan& plan, std::uint16_t ranks_per_host) {
  std::string peers;
  for (const HostEntry& host : plan.hosts) {
    for (std::size_t local_rank = 0; local_rank < ranks_per_host; ++local_rank) {
      peers += (peers.empty() ? "" : ",") + address_of_rank(host.peer, local_rank).to_string();
    }
  }
  return peers;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool holds_package(const fs::path& folder) {
  return is_there(folder / "spillway" / "__init__.py");
}

// Empty if it is not there.
fs::path package_folder(const fs::path& tool) {
  const fs::path installed = tool.parent_path().parent_path() / "lib/python3/dist-packages";
  if (holds_package(installed)) {
    return installed;
  }
  fs::path folder = tool.parent_path();
  for (int i = 0; i < kMaxFoldersUp; ++i, folder = folder.parent_path()) {
    if (holds_package(folder / "python")) {
      return folder / "python";
    }
  }
  return {};
}

fs::path library_path(const fs::path& tool) {
  const fs::path prefix = tool.parent_path().parent_path();
  for (const char* folder : {"lib", "lib64"}) {
    if (is_there(prefix / folder / kLibrary)) {
      return prefix / folder / kLibrary;
    }
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", error)) {
    if (entry.path().filename().string().ends_with("-linux-gnu") &&
        is_there(entry.path() / kLibrary)) {
      return entry.path() / kLibrary;
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> rank_variables(const HostPlan& plan, std::size_t rank,
                                        const EnvironmentOptions& options) {
  const std::size_t host_index = rank / options.ranks_per_host;
  const std::size_t local_rank = rank % options.ranks_per_host;
  const HostEntry& host = plan.hosts[host_index];
  const std::string_view interface = options.own_interface ? kHostInterface : "lo";
  const std::vector<std::string> variables = {
      fmt::format("RANK={}", rank),
      fmt::format("WORLD_SIZE={}", plan.hosts.size() * options.ranks_per_host),
      fmt::format("LOCAL_RANK={}", local_rank),
      fmt::format("LOCAL_WORLD_SIZE={}", options.ranks_per_host),
      fmt::format("GROUP_RANK={}", host_index),
      fmt::format("NODE_RANK={}", host_index),
      fmt::format("MASTER_ADDR={}", plan.master_address),
      fmt::format("MASTER_PORT={}", options.master_port),
      fmt::format("SPILLWAY_HOST_NAME={}", host.name),
      fmt::format("SPILLWAY_PEERS={}", peers_of(plan, options.ranks_per_host)),
      fmt::format("SPILLWAY_LISTEN={}", address_of_rank(host.listen, local_rank).to_string()),
      fmt::format("SPILLWAY_LINK_RATE={}", host.rate.count()),
      fmt::format("SPILLWAY_MTU={}", plan.mtu),
      fmt::format("SPILLWAY_TRIM_BYTES={}", plan.trim_bytes),
      fmt::format("SPILLWAY_LAB_ID={}", options.lab_id),
      fmt::format("GLOO_SOCKET_IFNAME={}", interface),
      fmt::format("NCCL_SOCKET_IFNAME={}", interface)};
  return with_variables(variables, options.additional);
}

std::vector<std::string> current_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

bool is_set(std::string_view key, const std::vector<std::string>& environment) {
  return std::any_of(environment.begin(), environment.end(),
                     [key](const std::string& variable) { return key_of(variable) == key; });
}

std::vector<std::string> thread_variables(const std::vector<std::string>& environment) {
  if (is_set("OMP_NUM_THREADS", environment)) {
    return {};
  }
  return {"OMP_NUM_THREADS=1"};
}

std::vector<std::string> with_variables(std::vector<std::string> environment,
                                        const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    set(environment, variable);
  }
  return environment;
}

std::vector<std::string> python_variables(const fs::path& tool,
                                          const std::vector<std::string>& environment) {
  std::vector<std::string> variables;
  if (!tool.is_absolute()) {
    return variables;  // its folder is unknown
  }
  const auto add = [&](const std::string& key, const fs::path& path) {
    if (!path.empty() && !is_set(key, environment)) {
      variables.push_back(key + "=" + path.string());
    }
  };
  const fs::path package = package_folder(tool);
  add("PYTHONPATH", package == "/usr/lib/python3/dist-packages" ? fs::path() : package);
  add("SPILLWAY_LIBRARY", library_path(tool));
  return variables;
}

std::vector<std::string> watch_variables(const fs::path& tool,
                                         const std::vector<std::string>& environment) {
  const fs::path package = package_folder(tool);
  const fs::path folder = package / "spillway" / "lab";
  if (!tool.is_absolute() || package.empty() || !is_there(folder / "sitecustomize.py")) {
    return {};
  }
  static constexpr std::string_view kKey = "PYTHONPATH";
  const auto set = std::find_if(environment.begin(), environment.end(),
                                [](const std::string& other) { return key_of(other) == kKey; });
  // An empty entry would mean the rank's own folder.
  const std::string others = set == environment.end() ? "" : set->substr(kKey.size() + 1);
  return {fmt::format("{}={}{}{}", kKey, folder.string(), others.empty() ? "" : ":", others)};
}

fs::path path_of_this_tool() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

}  // namespace spillway::lab
