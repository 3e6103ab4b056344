// SPDX-License-Identifier: Apache-2.0
//
// Gloo through torch.distributed: a Python process beside every rank, alive over all sizes.
#include <fmt/format.h>

#include <optional>

#include "cli/allreduce_gloo_script.h"
#include "cli/allreduce_helper.h"
#include "cli/allreduce_port.h"
#include "cli/allreduce_rival.h"
#include "cli/command_error.h"
#include "lab/environment.h"
#include "runtime/interfaces.h"
#include "runtime/launch.h"

namespace spillway::cli {
namespace {

// The interface that Spillway's own packets take.
runtime::InterfaceAddress own_interface() {
  const runtime::Environment environment = runtime::Environment::of_process();
  const runtime::Launch launch = value_or_throw(runtime::launch_from_environment(environment));
  const auto choice =
      value_or_throw(runtime::interface_choice(environment, launch.on_one_machine()));
  const auto interfaces = value_or_throw(runtime::interfaces_of_host());
  return value_or_throw(runtime::choose_interface(interfaces, choice));
}

// Where torch's ranks meet.
std::string store_address(const net::SocketAddress& address) {
  return "tcp://" + address.with_port(free_tcp_port(address)).to_string();
}

class GlooRival final : public AllreduceRival {
 public:
  explicit GlooRival(const RivalContext& context) : context_(context) {}

  const char* name() const override { return "gloo"; }
  std::string note() const override {
    return context_.settings.op == collective::ReduceOp::kAverage
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
  const runtime::InterfaceAddress interface = own_interface();
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
  process_->send_line(fmt::format("{}", fmt::join(rival_task(context_.settings, bytes), " ")));
  RivalTimes times = parse_rival_answer(process_->read_line(), context_.settings);
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

}  // namespace spillway::cli
