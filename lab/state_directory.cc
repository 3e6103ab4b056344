// SPDX-License-Identifier: Apache-2.0
#include "lab/state_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/own_file.h"
#include "net/system_call.h"

namespace spillway::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxName = 64;
constexpr int kPollsUntilKill = 100;  // of kPollInterval: SIGTERM, then SIGKILL
constexpr int kPollsUntilGivingUp = 200;
constexpr timespec kPollInterval = {.tv_sec = 0, .tv_nsec = 50'000'000};

base::Status check_name(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= kMaxName && name.front() != '.' &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                    });
  return fits ? base::Status()
              : base::invalid_argument(
                    fmt::format("'{}' is not a valid name for a lab: use at most {} letters, "
                                "digits, '-', '_' and '.', and do not begin with '.'",
                                name, kMaxName));
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// ------------------------------------------------------------------ the root and locks

// Refuses a directory that another user prepared in /tmp.
base::Status prepare_root(const fs::path& root) {
  for (const fs::path& folder : {root.parent_path(), root}) {
    if (base::Status status = base::prepare_own_folder(folder); !status.ok()) {
      return {status.code(),
              status.message() + "; or set XDG_RUNTIME_DIR to a directory of your own"};
    }
  }
  return {};
}

net::UniqueFd open_lock(const fs::path& path) {
  return net::UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

// Locks the root while labs come and go. Else a new lab could be reclaimed before it is locked.
base::Result<net::UniqueFd> lock_root(const fs::path& root) {
  if (base::Status status = prepare_root(root); !status.ok()) {
    return status;
  }
  net::UniqueFd lock = open_lock(root / ".lock");
  if (!lock.valid() || ::flock(lock.get(), LOCK_EX) != 0) {
    return net::system_error(fmt::format("lock {}", root.string()), errno);
  }
  return lock;
}

bool is_alive(const fs::path& lab) {
  const net::UniqueFd lock = open_lock(lab / "lock");
  return lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

// ------------------------------------------------------------------ records

LabRecord read_record(const fs::path& lab) {
  LabRecord record;
  std::istringstream words(read_text(lab / "lab"));
  std::string isolation;
  words >> record.name >> record.id >> isolation >> record.supervisor >> record.supervisor_start >>
      record.since >> record.hosts >> record.rate;
  const base::Result<Isolation> parsed = parse_isolation(isolation);
  record.isolation = parsed.ok() ? *parsed : Isolation::kNone;
  record.name = lab.filename();
  return record;
}

// ------------------------------------------------------------------ dead labs

bool carries(const fs::path& process, const std::string& id) {
  const std::string variables = '\0' + read_text(process / "environ") + '\0';
  const std::string wanted = fmt::format("SPILLWAY_LAB_ID={}", id);
  return variables.find('\0' + wanted + '\0') != std::string::npos;
}

// Without a process namespace, the children of ranks survive a lab that was killed.
void kill_processes_of(const std::string& id) {
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(process.path().filename().c_str());
    if (pid > 0 && pid != ::getpid() && carries(process.path(), id)) {
      ::kill(pid, SIGKILL);
    }
  }
}

std::vector<fs::path> directories_in(const fs::path& root) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
    if (entry.is_directory(error)) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

void reclaim(const fs::path& lab) {
  const LabRecord record = read_record(lab);
  if (!record.id.empty()) {
    kill_processes_of(record.id);
  }
  std::error_code error;
  fs::remove_all(lab, error);
}

void reclaim_dead_labs(const fs::path& root) {
  for (const fs::path& lab : directories_in(root)) {
    if (!is_alive(lab)) {
      reclaim(lab);
    }
  }
}

void signal_supervisor(const LabRecord& lab, int signal_number) {
  if (lab.supervisor > 0 && process_start(lab.supervisor) == lab.supervisor_start) {
    ::kill(lab.supervisor, signal_number);
  }
}

}  // namespace

fs::path default_state_root() {
  return fs::path(base::runtime_folder(base::Environment::of_process())) / "lab";
}

base::Result<StateDirectory> StateDirectory::create(const fs::path& root, const std::string& name) {
  if (base::Status status = check_name(name); !status.ok()) {
    return status;
  }
  const base::Result<net::UniqueFd> root_lock = lock_root(root);
  if (!root_lock.ok()) {
    return root_lock.status();
  }
  reclaim_dead_labs(root);
  const fs::path path = root / name;
  if (::mkdir(path.c_str(), 0700) != 0) {
    return errno == EEXIST
               ? base::invalid_argument(fmt::format(
                     "a lab named '{}' is running: choose another --name, or end it with "
                     "'spillway lab down --name {}'",
                     name, name))
               : net::system_error(fmt::format("make {}", path.string()), errno);
  }
  net::UniqueFd lock = open_lock(path / "lock");
  if (!lock.valid() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return net::system_error(fmt::format("lock {}", path.string()), errno);
  }
  const timespec now = net::timespec_of(base::time_of_day());
  std::string id = fmt::format("{}-{}-{}.{:09}", name, ::getpid(), now.tv_sec, now.tv_nsec);
  return StateDirectory(path, std::move(id), std::move(lock));
}

base::Status StateDirectory::write(const LabRecord& record) const {
  return base::replace_file(
      path_ / "lab", fmt::format("{} {} {} {} {} {} {} {}\n", record.name, record.id,
                                 isolation_name(record.isolation), record.supervisor,
                                 record.supervisor_start, record.since, record.hosts, record.rate));
}

base::Status StateDirectory::write(std::size_t index, const HostRecord& host) const {
  std::string text = fmt::format("{} {} {}\n", host.name, host.address, host.namespace_fd);
  for (const std::string& variable : host.variables) {
    text += variable + '\0';  // values may contain newlines
  }
  return base::replace_file(path_ / fmt::format("host.{}", index), text);
}

void StateDirectory::remove() const {
  kill_processes_of(id_);
  std::error_code error;
  fs::remove_all(path_, error);
}

base::Result<std::vector<LabRecord>> live_labs(const fs::path& root) {
  const base::Result<net::UniqueFd> root_lock = lock_root(root);
  if (!root_lock.ok()) {
    return root_lock.status();
  }
  reclaim_dead_labs(root);
  std::vector<LabRecord> labs;
  for (const fs::path& lab : directories_in(root)) {
    labs.push_back(read_record(lab));
  }
  return labs;
}

base::Result<std::vector<HostRecord>> hosts_of(const fs::path& root, const LabRecord& lab) {
  std::vector<HostRecord> hosts;
  for (std::uint32_t index = 0; index < lab.hosts; ++index) {
    std::ifstream file(root / lab.name / fmt::format("host.{}", index));
    HostRecord& host = hosts.emplace_back();
    file >> host.name >> host.address >> host.namespace_fd;
    file.ignore(1);
    for (std::string variable; std::getline(file, variable, '\0');) {
      host.variables.push_back(variable);
    }
    if (host.name.empty()) {
      return base::Status(base::StatusCode::kUnavailable,
                          fmt::format("the lab '{}' is not ready: try again", lab.name));
    }
  }
  return hosts;
}

base::Status end_lab(const fs::path& root, const LabRecord& lab) {
  signal_supervisor(lab, SIGTERM);
  for (int polls = 0; is_alive(root / lab.name); ++polls) {
    if (polls == kPollsUntilKill) {
      signal_supervisor(lab, SIGKILL);
    }
    if (polls == kPollsUntilGivingUp) {
      return {base::StatusCode::kInternal,
              fmt::format("the lab '{}' does not end: its supervisor is process {}", lab.name,
                          lab.supervisor)};
    }
    ::nanosleep(&kPollInterval, nullptr);
  }
  const base::Result<std::vector<LabRecord>> left = live_labs(root);  // reclaims it
  return left.ok() ? base::Status() : left.status();
}

std::uint64_t process_start(pid_t pid) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", pid));
  // The name in brackets may contain anything. Fields are counted after it; the state is the third.
  const std::size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) {
    return 0;
  }
  std::istringstream words(text.substr(bracket + 1));
  std::string word;
  constexpr int kStartField = 22;
  for (int field = 3; field <= kStartField; ++field) {
    words >> word;
  }
  return std::strtoull(word.c_str(), nullptr, 10);
}

}  // namespace spillway::lab
