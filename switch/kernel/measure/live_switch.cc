// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/measure/live_switch.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/bpf.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include "net/system_call.h"
#include "switch/dataplane/bpf/probe.skel.h"
#include "switch/kernel/attachment.h"
#include "switch/kernel/measure/probe_frames.h"
#include "switch/kernel/program_loading.h"

namespace spillway::kernel {

namespace {

constexpr std::uint32_t kOut = 1;  // the second port of the plan

SwitchPlan plan_of(const LiveSwitchOptions& options) {
  SwitchPlan plan;
  for (const std::string& interface : {options.in, options.out}) {
    plan.ports.push_back({.name = "switch->" + interface,
                          .interface = interface,
                          .config = options.config,
                          .link = options.link});
  }
  plan.adder.config = options.sums;
  return plan;
}

class AttachedSwitch final : public LiveSwitch {
 public:
  AttachedSwitch(ProbePrograms probes, Interface in, Interface sink)
      : probes_(std::move(probes)), in_(std::move(in)), sink_(std::move(sink)) {}
  ~AttachedSwitch() override;

  base::Status attach_switch(const LiveSwitchOptions& options);
  base::Status attach_probes(bool feeds);

  base::Status send(base::ByteView frame, std::uint32_t count) override {
    return send_live_frames(generator_.get(), in_.index, frame, count);
  }
  std::uint64_t arrived() const override { return probes_.arrived(); }
  fabric::PortSnapshot output_port() const override {
    return switch_ == nullptr ? fabric::PortSnapshot() : switch_->snapshot().ports[kOut];
  }
  spillway_sum_counters sums() const override {
    return switch_ == nullptr ? spillway_sum_counters() : switch_->maps().sum_counters();
  }

 private:
  ProbePrograms probes_;
  Interface in_;
  Interface sink_;
  std::unique_ptr<KernelSwitch> switch_;
  net::UniqueFd generator_;  // run on the frames; an XDP program
};

// The program at the interface's XDP hook.
net::UniqueFd attached_program(const Interface& interface) {
  std::uint32_t id = 0;
  if (::bpf_xdp_query_id(static_cast<int>(interface.index), 0, &id) != 0) {
    return {};
  }
  return net::UniqueFd(::bpf_prog_get_fd_by_id(id));
}

base::Status AttachedSwitch::attach_switch(const LiveSwitchOptions& options) {
  base::Result<std::unique_ptr<KernelSwitch>> attached = KernelSwitch::attach(
      plan_of(options), {.hook = *options.hook, .queues_others = options.queues_others});
  if (!attached.ok()) {
    return attached.status();
  }
  switch_ = std::move(attached).value();
  spillway_station station = {};
  std::memcpy(station.address, kProbeReceiver, sizeof(kProbeReceiver));
  return switch_->add_station(station, kOut);
}

// With XDP, the switch's program itself is run on the frames. Otherwise a program that passes all
// frames is attached. (A veth receives redirected frames only if it has a program.)
base::Status AttachedSwitch::attach_probes(bool feeds) {
  const base::Result<spillway_hook> sink = attach_xdp(probes_.fd(Probe::kSink), sink_);
  if (!sink.ok()) {
    return sink.status();
  }
  generator_ = attached_program(in_);
  if (!generator_.valid()) {
    const base::Result<spillway_hook> in = attach_xdp(probes_.fd(Probe::kPassXdp), in_);
    if (!in.ok()) {
      return in.status();
    }
    generator_ = attached_program(in_);
  }
  if (feeds) {
    generator_ = net::UniqueFd(::fcntl(probes_.fd(Probe::kFeed), F_DUPFD_CLOEXEC, 0));
  }
  return generator_.valid() ? base::Status() : net::system_error("find the program", errno);
}

AttachedSwitch::~AttachedSwitch() {
  detach_xdp(probes_.fd(Probe::kSink), sink_.index, SPILLWAY_HOOK_XDP);
  detach_xdp(probes_.fd(Probe::kPassXdp), in_.index, SPILLWAY_HOOK_XDP);
}

}  // namespace

base::Result<std::unique_ptr<LiveSwitch>> LiveSwitch::attach(const LiveSwitchOptions& options) {
  const base::Result<Interface> in = find_interface(options.in);
  if (!in.ok()) {
    return in.status();
  }
  const base::Result<Interface> sink = find_interface(options.sink);
  if (!sink.ok()) {
    return sink.status();
  }
  const bool feeds = !options.feeder.empty();
  const base::Result<Interface> feeder = feeds ? find_interface(options.feeder) : *in;
  if (!feeder.ok()) {
    return feeder.status();
  }
  base::Result<ProbePrograms> probes = ProbePrograms::load(feeder->index);
  if (!probes.ok()) {
    return probes.status();
  }
  auto made = std::make_unique<AttachedSwitch>(std::move(probes).value(), *in, *sink);
  base::Status status = options.hook ? made->attach_switch(options) : base::Status();
  if (status.ok()) {
    status = made->attach_probes(feeds);
  }
  if (!status.ok()) {
    return status;
  }
  return std::unique_ptr<LiveSwitch>(std::move(made));
}

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

namespace {

// As many as a network card's driver takes at once.
constexpr std::uint32_t kBatch = 64;
// Most bytes by which a program may grow its frame.
constexpr std::size_t kGrowth = 2048;

}  // namespace

base::Result<ProgramRun> run_program(int program_fd, base::ByteView frame, std::uint32_t repeat) {
  ProgramRun run;
  run.frame.resize(frame.size() + kGrowth);
  bpf_test_run_opts options = {};
  options.sz = sizeof(options);
  options.data_in = frame.data();
  options.data_size_in = static_cast<std::uint32_t>(frame.size());
  options.data_out = run.frame.data();
  options.data_size_out = static_cast<std::uint32_t>(run.frame.size());
  options.repeat = static_cast<int>(repeat);
  if (::bpf_prog_test_run_opts(program_fd, &options) != 0) {
    return net::system_error("run a program in the kernel", errno);
  }
  run.verdict = options.retval;
  run.frame.resize(options.data_size_out);
  run.nanoseconds = options.duration;
  return run;
}

base::Status send_live_frames(int program_fd, std::uint32_t ifindex, base::ByteView frame,
                              std::uint32_t count) {
  xdp_md context = {};
  context.data_end = static_cast<std::uint32_t>(frame.size());
  context.ingress_ifindex = ifindex;
  bpf_test_run_opts options = {};
  options.sz = sizeof(options);
  options.data_in = frame.data();
  options.data_size_in = static_cast<std::uint32_t>(frame.size());
  options.ctx_in = &context;
  options.ctx_size_in = sizeof(context);
  options.repeat = static_cast<int>(count);
  options.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
  options.batch_size = kBatch;
  if (::bpf_prog_test_run_opts(program_fd, &options) == 0) {
    return {};
  }
  return net::system_error("let the kernel make frames", errno, "it takes Linux 5.18");
}

}  // namespace spillway::kernel
