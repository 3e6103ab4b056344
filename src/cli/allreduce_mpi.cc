// SPDX-License-Identifier: Apache-2.0
//
// Open MPI's MPI_Allreduce over TCP: rank 0 runs mpirun with a program of ours once for every size,
// because the processes of MPI spin while they wait; the other ranks wait for rank 0.
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <limits>

#include "cli/allreduce_helper.h"
#include "cli/allreduce_rival.h"
#include "lab/environment.h"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;

// Beside the tool, as built, or where it is installed; empty where this build has none.
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

// On loopback and over TCP alone, as the others are measured.
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
    return context_.settings.op == collective::ReduceOp::kAverage
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
  const std::vector<std::string> task = rival_task(context_.settings, bytes);
  const std::string refusal = why_not(bytes / collective::element_size(context_.settings.type));
  if (!refusal.empty()) {
    return {{}, refusal};
  }
  std::vector<std::string> argv = mpirun(context_.peers.world());
  argv.push_back(program().string());
  argv.insert(argv.end(), task.begin(), task.end());
  // Asked to end, mpirun ends its ranks first; killed, it could not.
  HelperProcess process({argv, lab::current_environment(), SIGTERM});
  return parse_rival_answer(process.read_line(), context_.settings);
}

}  // namespace

std::unique_ptr<AllreduceRival> make_mpi_rival(const RivalContext& context) {
  return std::make_unique<MpiRival>(context);
}

}  // namespace spillway::cli
