// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/measure/probe_programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <numeric>
#include <vector>

#include "switch/dataplane/bpf/probe.skel.h"
#include "switch/kernel/program_loading.h"

namespace spillway::kernel {

void ProbePrograms::Close::operator()(probe_bpf* skeleton) const {
  probe_bpf__destroy(skeleton);
}

ProbePrograms::ProbePrograms(probe_bpf* skeleton) : skeleton_(skeleton) {}
ProbePrograms::~ProbePrograms() = default;
ProbePrograms::ProbePrograms(ProbePrograms&&) noexcept = default;
ProbePrograms& ProbePrograms::operator=(ProbePrograms&&) noexcept = default;

base::Result<ProbePrograms> ProbePrograms::load(std::uint32_t feeds) {
  if (base::Status status = check_kernel(); !status.ok()) {
    return status;
  }
  const LoadLog log;
  ProbePrograms programs(probe_bpf__open());
  if (programs.skeleton_ == nullptr) {
    return load_error("open the measuring programs", errno, log);
  }
  programs.skeleton_->rodata->feed_ifindex = feeds;
  if (const int error = probe_bpf__load(programs.skeleton_.get()); error != 0) {
    return load_error("load the measuring programs", -error, log);
  }
  return programs;
}

int ProbePrograms::fd(Probe probe) const {
  switch (probe) {
    case Probe::kPassXdp:
      return ::bpf_program__fd(skeleton_->progs.spillway_pass_xdp);
    case Probe::kPassTc:
      return ::bpf_program__fd(skeleton_->progs.spillway_pass_tc);
    case Probe::kFeed:
      return ::bpf_program__fd(skeleton_->progs.spillway_feed);
    case Probe::kSink:
      break;
  }
  return ::bpf_program__fd(skeleton_->progs.spillway_sink);
}

std::uint64_t ProbePrograms::arrived() const {
  const std::uint32_t zero = 0;
  std::vector<std::uint64_t> parts(static_cast<std::size_t>(::libbpf_num_possible_cpus()));
  (void)::bpf_map_lookup_elem(::bpf_map__fd(skeleton_->maps.arrivals), &zero, parts.data());
  return std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
}

}  // namespace spillway::kernel
