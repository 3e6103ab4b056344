// SPDX-License-Identifier: Apache-2.0
//
// Files that describe running labs, so that other commands of the same user find them:
//
//   ROOT/NAME/lock     locked (flock) by the lab's processes for as long as one of them lives
//   ROOT/NAME/lab      LabRecord
//   ROOT/NAME/host.N   HostRecord
//
// If a lab's lock is free, the lab is dead, whatever ended it. The next process that opens the root
// reclaims it: it kills the processes that carry the lab's id and removes the directory. Nothing
// else is ever touched.
//
// Roots belong to one user and are closed to all others.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "lab/network/isolation.h"
#include "net/system_call.h"

namespace spillway::lab {

struct LabRecord {
  std::string name;
  std::string id;  // SPILLWAY_LAB_ID in its processes
  Isolation isolation = Isolation::kNone;
  pid_t supervisor = 0;
  std::uint64_t supervisor_start = 0;  // see process_start()
  std::int64_t since = 0;              // seconds since 1970
  std::uint32_t hosts = 0;
  std::int64_t rate = 0;  // of host0's link, bits per second
};

struct HostRecord {
  std::string name;
  std::string address;
  int namespace_fd = -1;  // in the supervisor; -1: none
  std::vector<std::string> variables;
};

// The folder `lab` in base::runtime_folder().
std::filesystem::path default_state_root();

class StateDirectory {
 public:
  // Reclaims dead labs first. Fails if a lab of that name is running.
  static base::Result<StateDirectory> create(const std::filesystem::path& root,
                                             const std::string& name);

  const std::filesystem::path& path() const { return path_; }
  const std::string& id() const { return id_; }

  base::Status write(const LabRecord& record) const;
  base::Status write(std::size_t index, const HostRecord& host) const;
  // Call when the lab has ended: kills its leftover processes and removes its directory.
  void remove() const;

 private:
  StateDirectory(std::filesystem::path path, std::string id, net::UniqueFd lock)
      : path_(std::move(path)), id_(std::move(id)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  std::string id_;
  net::UniqueFd lock_;
};

// Running labs, by name. Reclaims dead ones first.
base::Result<std::vector<LabRecord>> live_labs(const std::filesystem::path& root);

base::Result<std::vector<HostRecord>> hosts_of(const std::filesystem::path& root,
                                               const LabRecord& lab);

// Asks the lab to end, kills it after a while, and returns when it is gone.
base::Status end_lab(const std::filesystem::path& root, const LabRecord& lab);

// The start of a process in clock ticks since boot; 0 if there is no such process. Together with
// the process id it identifies a process for good, because ids are reused.
std::uint64_t process_start(pid_t pid);

}  // namespace spillway::lab
