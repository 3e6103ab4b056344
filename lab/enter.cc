// SPDX-License-Identifier: Apache-2.0
#include "lab/enter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "lab/rank_environment.h"
#include "lab/rank_group.h"
#include "net/system_call.h"

namespace spillway::lab {
namespace {

base::Result<net::UniqueFd> open_of(const LabRecord& lab, std::string_view what) {
  const std::string path = fmt::format("/proc/{}/{}", lab.supervisor, what);
  net::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return net::system_error(fmt::format("open {}", path), errno, "is the lab still up?");
  }
  return file;
}

struct Doors {
  std::vector<net::UniqueFd> shared;  // user (if any), mount and process namespaces
  std::vector<net::UniqueFd> hosts;   // network namespaces
};

// Opens all of them before the first is entered: inside, /proc may show other processes.
base::Result<Doors> open_doors(const LabRecord& lab, const std::vector<HostRecord>& hosts) {
  Doors doors;
  std::vector<std::string> shared = {"ns/mnt", "ns/pid"};
  if (lab.isolation == Isolation::kUser) {
    shared.insert(shared.begin(), "ns/user");
  }
  for (const std::string& what : shared) {
    base::Result<net::UniqueFd> door = open_of(lab, what);
    if (!door.ok()) {
      return door.status();
    }
    doors.shared.push_back(std::move(door).value());
  }
  for (const HostRecord& host : hosts) {
    base::Result<net::UniqueFd> door = open_of(lab, fmt::format("fd/{}", host.namespace_fd));
    if (!door.ok()) {
      return door.status();
    }
    doors.hosts.push_back(std::move(door).value());
  }
  return doors;
}

base::Status enter(const Doors& doors) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  for (const net::UniqueFd& door : doors.shared) {
    if (::setns(door.get(), 0) != 0) {
      return net::system_error("enter the lab", errno);
    }
  }
  (void)!::chdir(here.c_str());  // a new mount namespace begins at its root
  return {};
}

base::Status start(const std::vector<HostRecord>& hosts, const Doors& doors,
                   const std::vector<std::string>& command, bool own_terminal, RankGroup& group) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    RankLaunch launch;
    launch.host = hosts[i].name;
    launch.argv = command;
    launch.environment = with_variables(current_environment(), hosts[i].variables);
    launch.network_namespace = doors.hosts.empty() ? -1 : doors.hosts[i].get();
    launch.own_terminal = own_terminal;
    if (base::Status status = group.start(launch); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace

base::Result<int> run_inside(const LabRecord& lab, const std::vector<HostRecord>& hosts,
                             const std::vector<std::string>& command, bool own_terminal) {
  base::Result<Doors> doors = lab.isolation == Isolation::kNone ? Doors() : open_doors(lab, hosts);
  if (!doors.ok()) {
    return doors.status();
  }
  if (base::Status status = enter(*doors); !status.ok()) {
    return status;
  }
  const BlockedSignals blocked;
  RankGroup group({}, base::seconds(10));
  if (base::Status status = start(hosts, *doors, command, own_terminal, group); !status.ok()) {
    return status;
  }
  const GroupOutcome outcome = group.run(-1, false);
  if (outcome.interrupted_by != 0) {
    return 128 + outcome.interrupted_by;
  }
  return *std::max_element(outcome.exit_codes.begin(), outcome.exit_codes.end());
}

}  // namespace spillway::lab
