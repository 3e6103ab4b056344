// SPDX-License-Identifier: Apache-2.0
#include "observe/wait_watch.h"

#include "observe/log.h"

namespace spillway::runtime {
namespace {

base::Instant next_multiple(base::Instant now) {
  const std::int64_t every = net::kWaitLookEvery.count();
  return base::Instant(base::nanoseconds((now.since_zero().count() / every + 1) * every));
}

std::uint64_t& looks_at(net::WaitCounts& counts, net::Wait wait) {
  return counts.looks[static_cast<std::size_t>(wait)];
}

std::optional<net::WaitBoard> open_board(const std::string& path) {
  if (path.empty()) {
    return std::nullopt;
  }
  base::Result<net::WaitBoard> board = net::WaitBoard::open(path);
  if (!board.ok()) {
    log_warn("what ranks wait for is not counted: {}", board.status().message());
    return std::nullopt;
  }
  return std::move(board).value();
}

}  // namespace

net::Wait wait_of(transport::Holdup holdup, bool is_computing) {
  switch (holdup) {
    case transport::Holdup::kNothing:
      return net::Wait::kNothing;
    case transport::Holdup::kWindow:
      return net::Wait::kWindow;
    case transport::Holdup::kCredit:
      return net::Wait::kCredit;
    case transport::Holdup::kAnswer:
    case transport::Holdup::kReceiver:
    case transport::Holdup::kIncoming:
      break;
    case transport::Holdup::kIdle:
      return net::Wait::kComputing;  // nothing in the network to wait for
  }
  if (is_computing) {
    return net::Wait::kComputing;
  }
  return holdup == transport::Holdup::kAnswer ? net::Wait::kAnswer : net::Wait::kOtherRank;
}

WaitWatch::WaitWatch(const std::string& path) : WaitWatch(open_board(path)) {}

void WaitWatch::begin(base::Instant now) {
  if (!board_) {
    return;
  }
  if (under_way_++ == 0) {
    due_ = next_multiple(now);
  }
  board_->add({.under_way = 1});
}

void WaitWatch::end() {
  if (!board_) {
    return;
  }
  if (--under_way_ == 0) {
    due_ = transport::kNever;
  }
  board_->add({.under_way = UINT64_MAX});  // adds -1
}

void WaitWatch::look(net::Wait wait, base::Instant now) {
  if (now < due_) {
    return;
  }
  net::WaitCounts seen;
  looks_at(seen, net::Wait::kComputing) =
      static_cast<std::uint64_t>((now - due_).count() / net::kWaitLookEvery.count());
  ++looks_at(seen, wait);
  board_->add(seen);
  due_ = next_multiple(now);
}

void WaitWatch::tell(const transport::EndpointCounters& counters) {
  if (!board_) {
    return;
  }
  board_->add({.sent_bytes = counters.data_sent_bytes - told_.sent_bytes,
               .resent_bytes = counters.data_resent_bytes - told_.resent_bytes,
               .wasted_bytes = counters.wasted_bytes - told_.wasted_bytes});
  told_.sent_bytes = counters.data_sent_bytes;
  told_.resent_bytes = counters.data_resent_bytes;
  told_.wasted_bytes = counters.wasted_bytes;
}

}  // namespace spillway::runtime
