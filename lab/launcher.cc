// SPDX-License-Identifier: Apache-2.0
#include "lab/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>

#include "lab/network/links.h"
#include "lab/rank_environment.h"
#include "lab/rank_group.h"
#include "lab/supervisor.h"
#include "net/sockets.h"
#include "net/system_call.h"

namespace spillway::lab {

namespace {

// ------------------------------------------------------------------ the plan

// Finds ports that are free now. If another process takes one before the lab does, starting the
// lab fails with an error.
base::Result<std::vector<net::SocketAddress>> free_loopback_addresses(std::size_t count) {
  const net::SocketAddress any = net::SocketAddress::parse("127.0.0.1:0").value();
  std::vector<net::UdpSocket> sockets;  // held, so that no port is found twice
  std::vector<net::SocketAddress> addresses;
  for (std::size_t i = 0; i < count; ++i) {
    base::Result<net::UdpSocket> socket = net::UdpSocket::open(any);
    if (!socket.ok()) {
      return socket.status();
    }
    addresses.push_back(socket->local());
    sockets.push_back(std::move(socket).value());
  }
  return addresses;
}

base::Result<HostPlan> plan_for(const LabOptions& options, Isolation isolation) {
  base::Result<HostPlan> plan =
      make_host_plan(options.scenario, {.mtu = options.mtu, .port = options.port});
  if (!plan.ok()) {
    return plan;
  }
  if (isolation != Isolation::kNone) {
    const bool has_ipv6 = ::access("/proc/net/if_inet6", F_OK) == 0;
    for (HostEntry& host : plan.value().hosts) {
      host.ipv6 = has_ipv6 ? host.ipv6 : "";
    }
    return plan;
  }
  const std::size_t count = plan->hosts.size();
  const base::Result<std::vector<net::SocketAddress>> free = free_loopback_addresses(2 * count);
  if (!free.ok()) {
    return free.status();
  }
  const auto middle = free->begin() + static_cast<std::ptrdiff_t>(count);
  return on_loopback(std::move(plan).value(), {free->begin(), middle}, {middle, free->end()});
}

base::Status check_commands(const LabOptions& options, const HostPlan& plan, Isolation isolation,
                            const std::vector<RankCommand>& commands) {
  if (options.ranks_per_host > 1 && isolation == Isolation::kNone) {
    return base::invalid_argument(
        "several ranks on a host need hosts with namespaces of their own: run as root, allow user "
        "namespaces, or take one rank per host");
  }
  if (commands.size() > plan.hosts.size() * options.ranks_per_host) {
    return base::invalid_argument(
        fmt::format("{} commands for {} hosts of {} ranks: give at most one each", commands.size(),
                    plan.hosts.size(), options.ranks_per_host));
  }
  for (const RankCommand& command : commands) {
    if (command.argv.empty()) {
      return base::invalid_argument("a command is empty: name a program to run");
    }
  }
  return {};
}

// ------------------------------------------------------------------ the supervisor's process

struct Running {
  pid_t supervisor = -1;
  net::UniqueFd report;
};

void leave_terminal() {
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(null, fd);
  }
  (void)!::chdir("/");
}

// Runs in the child.
base::Status set_up_supervisor(const SupervisorTask& task, unsigned user, unsigned group) {
  if (task.stays) {
    leave_terminal();
  } else {
    ::setpgid(0, 0);  // Ctrl-C reaches the starter, which passes it on
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    pollfd starter = {task.report_fd, 0, 0};
    if (::poll(&starter, 1, 0) > 0) {
      return {base::StatusCode::kInternal, "the process that started the lab has ended"};
    }
  }
  return become_root_inside(task.isolation, user, group);
}

base::Result<Running> start_supervisor(SupervisorTask task) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return net::system_error("make a pipe", errno);
  }
  Running running;
  running.report = net::UniqueFd(ends[0]);
  const net::UniqueFd write_end(ends[1]);
  task.report_fd = write_end.get();
  const unsigned user = ::geteuid();
  const unsigned group = ::getegid();
  // The raw call returns twice, as fork() does; glibc has no fork() with flags.
  running.supervisor =
      static_cast<pid_t>(::syscall(SYS_clone, clone_flags(task.isolation) | SIGCHLD, 0, 0, 0, 0));
  if (running.supervisor == 0) {
    running.report = {};
    const base::Status status = set_up_supervisor(task, user, group);
    if (status.ok()) {
      supervise(task);
    } else {
      write_all(task.report_fd, error_line(status));
    }
    ::_exit(0);
  }
  if (running.supervisor < 0) {
    return net::system_error("start the lab's supervisor", errno, "try --isolation none");
  }
  return running;
}

// ------------------------------------------------------------------ the starter's process

void pass_on_signals(int signal_fd, pid_t supervisor) {
  signalfd_siginfo info = {};
  while (::read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
    ::kill(supervisor, static_cast<int>(info.ssi_signo));
  }
}

// Reads the supervisor's output until `enough` accepts it or the supervisor is gone.
template <typename Enough>
std::string read_report(const Running& running, Enough enough) {
  const sigset_t signals = end_signals();
  const net::UniqueFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  std::string text;
  std::array<char, 4096> buffer;
  while (!enough(text)) {
    std::array<pollfd, 2> polled = {
        {{running.report.get(), POLLIN, 0}, {signal_fd.get(), POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), -1);
    pass_on_signals(signal_fd.get(), running.supervisor);
    if (polled[0].revents == 0) {
      continue;
    }
    const ssize_t size = ::read(running.report.get(), buffer.data(), buffer.size());
    if (size == 0) {
      break;
    }
    text.append(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  }
  return text;
}

// Gives the caller the samples in the complete lines of `text` from `begin` on. Returns where the
// incomplete rest begins.
std::size_t forward_samples(std::string_view text, std::size_t begin, const LabOptions& options) {
  for (std::size_t end = text.find('\n', begin); end != std::string_view::npos;
       end = text.find('\n', begin)) {
    if (const auto sample = parse_sample(text.substr(begin, end - begin)); sample) {
      options.on_sample(*sample);
    }
    begin = end + 1;
  }
  return begin;
}

// Reads all of the supervisor's output.
std::string read_whole_report(const Running& running, const LabOptions& options) {
  std::size_t forwarded = 0;
  return read_report(running, [&](const std::string& text) {
    forwarded = options.on_sample ? forward_samples(text, forwarded, options) : 0;
    return false;
  });
}

LabRecord record_of(const SupervisorTask& task, pid_t supervisor) {
  LabRecord record;
  record.name = task.state.path().filename();
  record.id = task.state.id();
  record.isolation = task.isolation;
  record.supervisor = supervisor;
  record.supervisor_start = process_start(supervisor);
  record.since = ::time(nullptr);
  record.hosts = static_cast<std::uint32_t>(task.plan.hosts.size());
  record.rate = task.plan.hosts.front().rate.count();
  return record;
}

base::Status was_killed() {
  return {base::StatusCode::kInternal,
          "the lab's supervisor was killed, and the lab ended with it"};
}

struct Prepared {
  Isolation isolation;
  HostPlan plan;
  StateDirectory state;
};

base::Result<Prepared> prepare(const LabOptions& options, const std::string& default_name,
                               const std::filesystem::path& state_root) {
  if (base::Status status = check_congestion_control(options.tcp); !status.ok()) {
    return status;
  }
  const base::Result<Isolation> isolation = resolve_isolation(options.isolation);
  if (!isolation.ok()) {
    return isolation.status();
  }
  base::Result<HostPlan> plan = plan_for(options, *isolation);
  if (!plan.ok()) {
    return plan.status();
  }
  base::Result<StateDirectory> state =
      StateDirectory::create(state_root, options.name.empty() ? default_name : options.name);
  if (!state.ok()) {
    return state.status();
  }
  return Prepared{*isolation, std::move(plan).value(), std::move(state).value()};
}

base::Result<LabOutcome> run_prepared(const LabOptions& options, const Prepared& prepared,
                                      const std::vector<RankCommand>& commands) {
  if (base::Status status = check_commands(options, prepared.plan, prepared.isolation, commands);
      !status.ok()) {
    return status;
  }
  const BlockedSignals blocked;
  const SupervisorTask task{options, prepared.plan, prepared.isolation, commands, prepared.state,
                            -1,      false};
  const base::Result<Running> running = start_supervisor(task);
  if (!running.ok()) {
    return running.status();
  }
  (void)prepared.state.write(record_of(task, running->supervisor));
  Report report = parse_report(read_whole_report(*running, options));
  ::waitpid(running->supervisor, nullptr, 0);
  if (!report.error.ok()) {
    return report.error;
  }
  if (report.outcome.exit_codes.size() != commands.size()) {
    return was_killed();
  }
  report.outcome.isolation = prepared.isolation;
  return report.outcome;
}

base::Result<StartedLab> start_prepared(const LabOptions& options, const Prepared& prepared,
                                        const std::filesystem::path& state_root) {
  const SupervisorTask task{options, prepared.plan, prepared.isolation, {}, prepared.state,
                            -1,      true};
  const BlockedSignals blocked;
  const base::Result<Running> running = start_supervisor(task);
  if (!running.ok()) {
    return running.status();
  }
  StartedLab lab;
  lab.record = record_of(task, running->supervisor);
  (void)prepared.state.write(lab.record);
  const Report report = parse_report(read_report(
      *running, [](const std::string& text) { return text.find('\n') != std::string::npos; }));
  if (!report.error.ok()) {
    return report.error;
  }
  if (!report.ready) {
    return was_killed();
  }
  base::Result<std::vector<HostRecord>> hosts = hosts_of(state_root, lab.record);
  if (!hosts.ok()) {
    return hosts.status();
  }
  lab.hosts = std::move(hosts).value();
  return lab;
}

}  // namespace

base::Result<LabOutcome> run_lab(const LabOptions& options,
                                 const std::vector<RankCommand>& commands,
                                 const std::filesystem::path& state_root) {
  const base::Result<Prepared> prepared =
      prepare(options, fmt::format("run-{}", ::getpid()), state_root);
  if (!prepared.ok()) {
    return prepared.status();
  }
  base::Result<LabOutcome> outcome = run_prepared(options, *prepared, commands);
  prepared->state.remove();
  return outcome;
}

base::Result<StartedLab> start_lab(const LabOptions& options,
                                   const std::filesystem::path& state_root) {
  const base::Result<Prepared> prepared = prepare(options, "lab", state_root);
  if (!prepared.ok()) {
    return prepared.status();
  }
  base::Result<StartedLab> lab = start_prepared(options, *prepared, state_root);
  if (!lab.ok()) {
    prepared->state.remove();
  }
  return lab;
}

// ------------------------------------------------------------------ running labs

namespace {

base::Result<net::UniqueFd> open_proc_file(const LabRecord& lab, std::string_view what) {
  const std::string path = fmt::format("/proc/{}/{}", lab.supervisor, what);
  net::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return net::system_error(fmt::format("open {}", path), errno, "is the lab still up?");
  }
  return file;
}

struct LabNamespaces {
  std::vector<net::UniqueFd> shared;  // user (if any), mount and process namespaces
  std::vector<net::UniqueFd> hosts;   // network namespaces
};

// Opens all namespaces before the process enters the first: inside, /proc may show other processes.
base::Result<LabNamespaces> open_namespaces(const LabRecord& lab,
                                            const std::vector<HostRecord>& hosts) {
  LabNamespaces namespaces;
  std::vector<std::string> shared = {"ns/mnt", "ns/pid"};
  if (lab.isolation == Isolation::kUser) {
    shared.insert(shared.begin(), "ns/user");
  }
  for (const std::string& what : shared) {
    base::Result<net::UniqueFd> file = open_proc_file(lab, what);
    if (!file.ok()) {
      return file.status();
    }
    namespaces.shared.push_back(std::move(file).value());
  }
  for (const HostRecord& host : hosts) {
    base::Result<net::UniqueFd> file = open_proc_file(lab, fmt::format("fd/{}", host.namespace_fd));
    if (!file.ok()) {
      return file.status();
    }
    namespaces.hosts.push_back(std::move(file).value());
  }
  return namespaces;
}

base::Status enter(const LabNamespaces& namespaces) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  for (const net::UniqueFd& file : namespaces.shared) {
    if (::setns(file.get(), 0) != 0) {
      return net::system_error("enter the lab", errno);
    }
  }
  (void)!::chdir(here.c_str());  // setns() moved the process to the root folder
  return {};
}

base::Status start(const std::vector<HostRecord>& hosts, const LabNamespaces& namespaces,
                   const std::vector<std::string>& command, bool own_terminal, RankGroup& group) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    RankLaunch launch;
    launch.host = hosts[i].name;
    launch.argv = command;
    launch.environment = with_variables(current_environment(), hosts[i].variables);
    launch.network_namespace = namespaces.hosts.empty() ? -1 : namespaces.hosts[i].get();
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
  base::Result<LabNamespaces> namespaces =
      lab.isolation == Isolation::kNone ? LabNamespaces() : open_namespaces(lab, hosts);
  if (!namespaces.ok()) {
    return namespaces.status();
  }
  if (base::Status status = enter(*namespaces); !status.ok()) {
    return status;
  }
  const BlockedSignals blocked;
  RankGroup group({}, base::seconds(10));
  if (base::Status status = start(hosts, *namespaces, command, own_terminal, group); !status.ok()) {
    return status;
  }
  const GroupOutcome outcome = group.run(-1, false);
  if (outcome.interrupted_by != 0) {
    return 128 + outcome.interrupted_by;
  }
  return *std::max_element(outcome.exit_codes.begin(), outcome.exit_codes.end());
}

}  // namespace spillway::lab
