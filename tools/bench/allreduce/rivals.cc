// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/allreduce/rivals.h"

#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>

#include "lab/rank_environment.h"
#include "launch/launch.h"
#include "tools/bench/allreduce/gloo_script.h"
#include "tools/bench/allreduce/ranks.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

std::vector<std::string> rival_task(const AllreduceWork& work, std::size_t bytes) {
  return {collective::nccl_tests_name(work.type),
          redop_name(work.op),
          std::to_string(bytes / collective::element_size(work.type)),
          std::to_string(work.warmup),
          std::to_string(work.iterations),
          std::to_string(work.in_flight)};
}

RivalTimes parse_rival_answer(const std::string& line, const AllreduceWork& work) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  RivalTimes times;
  if (kind == "times") {
    for (double seconds = 0.0; words >> seconds;) {
      times.seconds.push_back(seconds / work.in_flight);
    }
  }
  if (times.seconds.size() == work.iterations) {
    return times;
  }
  times.seconds.clear();
  times.why_not = kind == "error" ? line.substr(kind.size() + 1) : "it ended without an answer";
  return times;
}

// Gloo through torch.distributed: a Python process beside every rank, alive over all sizes.
namespace {

// The interface that Spillway's own packets use.
net::InterfaceAddress own_interface() {
  const base::Environment environment = base::Environment::of_process();
  const launch::Launch launch = value_or_throw(launch::launch_from_environment(environment));
  const auto choice =
      value_or_throw(launch::interface_choice(environment, launch.on_one_machine()));
  const auto interfaces = value_or_throw(net::interface_addresses());
  return value_or_throw(launch::choose_interface(interfaces, choice));
}

// Address at which torch's ranks meet.
std::string store_address(const net::SocketAddress& address) {
  return "tcp://" + address.with_port(free_tcp_port(address)).to_string();
}

class GlooRival final : public AllreduceRival {
 public:
  explicit GlooRival(const RivalContext& context) : context_(context) {}

  const char* name() const override { return "gloo"; }
  std::string note() const override {
    return context_.work.op == collective::ReduceOp::kAverage
               ? "Gloo has no average: its figures are those of a sum"
               : "";
  }
  RivalTimes measure(std::size_t bytes) override;

 private:
  void start();

  RivalContext context_;
  bool is_started_ = false;
  std::string why_not_;
  std::optional<HelperProcess> process_;
};

void GlooRival::start() {
  is_started_ = true;
  const net::InterfaceAddress interface = own_interface();
  AllreducePeers& peers = context_.peers;
  const std::string address =
      peers.from_first(peers.rank() == 0 ? store_address(interface.address) : "");
  std::vector<std::string> environment =
      lab::with_variables({"GLOO_SOCKET_IFNAME=" + interface.name}, lab::current_environment());
  environment = lab::with_variables(std::move(environment), {"OMP_NUM_THREADS=1"});
  process_.emplace(HelperCommand{{context_.python, "-c", kGlooScript, std::to_string(peers.rank()),
                                  std::to_string(peers.world()), address},
                                 environment});
  const std::string answer = process_->read_line();
  if (answer != "ready") {
    why_not_ = answer.starts_with("error ")
                   ? fmt::format("{} says: {}; install python3-torch or name another with --python",
                                 context_.python, answer.substr(6))
                   : context_.python + " did not start it; name another with --python";
  }
  if (!peers.do_all(why_not_.empty())) {
    process_.reset();
    why_not_ = why_not_.empty() ? "it did not start at another rank" : why_not_;
  }
}

RivalTimes GlooRival::measure(std::size_t bytes) {
  if (!is_started_) {
    start();
  }
  if (!process_) {
    return {{}, why_not_};
  }
  process_->send_line(fmt::format("{}", fmt::join(rival_task(context_.work, bytes), " ")));
  RivalTimes times = parse_rival_answer(process_->read_line(), context_.work);
  if (!context_.peers.do_all(!times.seconds.empty())) {
    return {{}, times.why_not.empty() ? "it failed at another rank" : times.why_not};
  }
  context_.peers.take_maximum(times.seconds);
  return times;
}

}  // namespace

std::unique_ptr<AllreduceRival> make_gloo_rival(const RivalContext& context) {
  return std::make_unique<GlooRival>(context);
}

// Open MPI's MPI_Allreduce over TCP. Rank 0 runs mpirun with a program of ours once per size,
// because MPI processes spin while they wait; the other ranks wait for rank 0.
namespace {

namespace fs = std::filesystem;

// Path of the program, beside the tool or installed; empty if this build has none.
fs::path program() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& place : {folder, folder / "../libexec/spillway"}) {
    const fs::path candidate = place / "spillway_mpi_allreduce";
    if (fs::exists(candidate)) {
      return candidate;
    }
  }
  return {};
}

// Uses loopback and TCP only, as for the other libraries.
std::vector<std::string> mpirun(unsigned world) {
  return {"mpirun",
          "--allow-run-as-root",
          "--oversubscribe",
          "--bind-to",
          "none",
          "--mca",
          "btl",
          "tcp,self",
          "--mca",
          "pml",
          "ob1",
          "--mca",
          "btl_tcp_if_include",
          "lo",
          "--mca",
          "oob_tcp_if_include",
          "lo",
          "-n",
          std::to_string(world)};
}

class MpiRival final : public AllreduceRival {
 public:
  explicit MpiRival(const RivalContext& context) : context_(context) {}

  const char* name() const override { return "mpi"; }
  std::string note() const override {
    return context_.work.op == collective::ReduceOp::kAverage
               ? "MPI has no average: its figures are those of a sum"
               : "";
  }
  RivalTimes measure(std::size_t bytes) override {
    RivalTimes times;
    if (context_.peers.rank() == 0) {
      times = measure_here(bytes);
    }
    context_.peers.barrier();
    return times;
  }

 private:
  std::string why_not(std::size_t count) const;
  RivalTimes measure_here(std::size_t bytes) const;

  RivalContext context_;
};

std::string MpiRival::why_not(std::size_t count) const {
  if (!context_.is_started_here) {
    return "mpirun starts ranks of its own, on this machine alone: run without a launcher, with "
           "--ranks";
  }
  if (program().empty()) {
    return "this build has no program for it: install libopenmpi-dev and openmpi-bin and build "
           "again";
  }
  if (count > std::numeric_limits<int>::max()) {
    return "MPI counts elements up to 2^31";
  }
  return {};
}

RivalTimes MpiRival::measure_here(std::size_t bytes) const {
  const std::vector<std::string> task = rival_task(context_.work, bytes);
  const std::string refusal = why_not(bytes / collective::element_size(context_.work.type));
  if (!refusal.empty()) {
    return {{}, refusal};
  }
  std::vector<std::string> argv = mpirun(context_.peers.world());
  argv.push_back(program().string());
  argv.insert(argv.end(), task.begin(), task.end());
  // On SIGTERM mpirun ends its ranks first; on SIGKILL it could not.
  HelperProcess process({argv, lab::current_environment(), SIGTERM});
  return parse_rival_answer(process.read_line(), context_.work);
}

}  // namespace

std::unique_ptr<AllreduceRival> make_mpi_rival(const RivalContext& context) {
  return std::make_unique<MpiRival>(context);
}

}  // namespace spillway::bench
