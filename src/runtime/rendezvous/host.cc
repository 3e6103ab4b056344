// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/host.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"
#include "runtime/observe/log.h"
#include "runtime/rendezvous/message.h"
#include "runtime/rendezvous/notice.h"
#include "runtime/rendezvous/socket.h"

namespace spillway::runtime {
namespace {

// Someone who has connected to the host of a rendezvous: the stream, what came of it and what is
// still to be said. Nothing blocks. One thread.
//
//   stranger ── a good hello ──► guest, who waits for the others
//       └────── anything else ─► dismissed: hears why, and is kept until the end of that is read,
//                                because closing earlier would destroy what is on its way
class Visitor {
 public:
  // A stranger, or someone dismissed, is not kept beyond `leave_by`.
  Visitor(net::UniqueFd socket, base::Instant leave_by)
      : socket_(std::move(socket)), leave_by_(leave_by) {}

  int fd() const { return socket_.get(); }
  // For poll.
  short wanted_events() const;
  // Whether poll has something to tell; a newcomer has not been asked yet.
  bool is_ready() const { return ready_; }
  void set_ready(bool ready) { ready_ = ready; }

  bool is_stranger() const { return !rank_ && !dismissed_; }
  std::optional<std::uint32_t> rank() const { return rank_; }
  bool is_overdue(base::Instant now) const { return !rank_ && now >= leave_by_; }

  // What a stranger has said; nothing while it is incomplete. Of others what comes is thrown away.
  base::Result<std::optional<Frame>> listen();
  // The stream has ended, or failed.
  bool is_gone() const { return gone_; }

  void become(std::uint32_t rank) { rank_ = rank; }
  void say(std::shared_ptr<const Blob> frame);
  void dismiss(const Refusal& refusal);
  // Sends what fits.
  void flush();
  bool has_said_all() const { return outbox_.empty(); }

 private:
  net::UniqueFd socket_;
  base::Instant leave_by_;
  std::optional<std::uint32_t> rank_{};
  bool ready_ = true;
  bool dismissed_ = false;
  bool gone_ = false;
  FrameReader inbox_{kMaxHelloBytes};
  std::deque<std::shared_ptr<const Blob>> outbox_{};
  std::size_t sent_ = 0;  // of the first in the outbox
};

short Visitor::wanted_events() const {
  return static_cast<short>(POLLIN | (outbox_.empty() ? 0 : POLLOUT));
}

base::Result<std::optional<Frame>> Visitor::listen() {
  Blob bytes;
  gone_ = gone_ || receive_some(socket_, bytes) == StreamState::kClosed;
  if (!is_stranger()) {
    return std::optional<Frame>();
  }
  inbox_.append(bytes);
  return inbox_.next();
}

void Visitor::say(std::shared_ptr<const Blob> frame) {
  outbox_.push_back(std::move(frame));
  flush();
}

void Visitor::dismiss(const Refusal& refusal) {
  dismissed_ = true;
  say(std::make_shared<const Blob>(encode(refusal)));
}

void Visitor::flush() {
  while (!outbox_.empty() && !gone_) {
    gone_ = send_some(socket_, *outbox_.front(), sent_) == StreamState::kClosed;
    if (sent_ < outbox_.front()->size()) {
      return;
    }
    outbox_.pop_front();
    sent_ = 0;
  }
  if (dismissed_) {
    ::shutdown(socket_.get(), SHUT_WR);
  }
}

// How long the others may take to hear that it has come to nothing.
constexpr base::Duration kFarewell = base::seconds(1);
// For what else a process has open.
constexpr std::uint64_t kSpareFiles = 32;

class Host {
 public:
  Host(Listening listening, const Attendance& attendance, const Blob& own)
      : listening_(std::move(listening)), register_(attendance, own, clock_.now()) {}

  base::Result<std::vector<Blob>> run();

 private:
  void wait_until(base::Instant when);
  void accept_newcomers();
  void serve(Visitor& visitor);
  void note_served(const Visitor& visitor);
  void hear(Visitor& visitor, const Frame& frame);
  void admit(Visitor& visitor, const Hello& hello);
  void dismiss(Visitor& visitor, const Refusal& refusal);
  void remove_departed();
  void hand_out();
  void say_who_is_missing();
  std::string with_refusal(std::string sentence) const;
  base::Status give_up();

  base::MonotonicClock clock_;
  Listening listening_;
  Register register_;
  std::list<Visitor> visitors_;             // in the order of their coming
  std::shared_ptr<const Blob> gathered_{};  // once all were here
  std::string last_refusal_{};
  WaitNotice notice_{clock_.now()};
};

base::Result<std::vector<Blob>> Host::run() {
  while (!register_.all_served()) {
    if (clock_.now() >= register_.deadline()) {
      return give_up();
    }
    wait_until(std::min(register_.deadline(), notice_.next()));
    accept_newcomers();
    for (Visitor& visitor : visitors_) {
      if (visitor.is_ready()) {
        serve(visitor);
      }
    }
    remove_departed();
    if (register_.is_sealed() && gathered_ == nullptr) {
      hand_out();
    }
    say_who_is_missing();
  }
  return register_.blobs();
}

// Until something happens, but for no longer than strangers may stay.
void Host::wait_until(base::Instant when) {
  std::vector<pollfd> waiting = {{listening_.socket.get(), POLLIN, 0}};
  bool anybody_to_remove = false;
  for (const Visitor& visitor : visitors_) {
    waiting.push_back({visitor.fd(), visitor.wanted_events(), 0});
    anybody_to_remove = anybody_to_remove || !visitor.rank();
  }
  base::Duration patience = when - clock_.now();
  patience = anybody_to_remove ? std::min(patience, kStrangerPatience / 4) : patience;
  const std::int64_t ms = std::clamp<std::int64_t>(patience.count() / 1'000'000 + 1, 0, 60'000);
  ::poll(waiting.data(), waiting.size(), static_cast<int>(ms));
  auto polled = waiting.cbegin() + 1;
  for (Visitor& visitor : visitors_) {
    visitor.set_ready((polled++)->revents != 0);
  }
}

void Host::accept_newcomers() {
  for (net::UniqueFd socket = accept_from(listening_.socket); socket.valid();
       socket = accept_from(listening_.socket)) {
    visitors_.emplace_back(std::move(socket), clock_.now() + kStrangerPatience);
    const auto no_guest = [](const Visitor& visitor) { return !visitor.rank(); };
    const auto oldest = std::find_if(visitors_.begin(), visitors_.end(), no_guest);
    if (static_cast<std::size_t>(std::count_if(visitors_.begin(), visitors_.end(), no_guest)) >
        kMaxStrangers) {
      visitors_.erase(oldest);
    }
  }
}

void Host::serve(Visitor& visitor) {
  visitor.flush();
  note_served(visitor);
  const base::Result<std::optional<Frame>> heard = visitor.listen();
  if (!heard.ok()) {
    dismiss(visitor, {true, heard.status().message()});
  } else if (heard->has_value()) {
    hear(visitor, **heard);
  }
  if (visitor.rank() && visitor.is_gone()) {
    register_.leave(*visitor.rank());
  }
}

// Before it is listened to: a guest that has heard everything leaves at once.
void Host::note_served(const Visitor& visitor) {
  if (visitor.rank() && gathered_ != nullptr && visitor.has_said_all() && !visitor.is_gone()) {
    register_.mark_served(*visitor.rank());
  }
}

void Host::hear(Visitor& visitor, const Frame& frame) {
  const base::Result<Hello> hello = parse_hello(frame.body);
  if (frame.type != FrameType::kHello || !hello.ok()) {
    dismiss(visitor, {true, "a rank that comes to a rendezvous says hello first"});
  } else if (const std::optional<Refusal> objection = register_.objection(*hello)) {
    dismiss(visitor, *objection);
  } else {
    admit(visitor, *hello);
  }
}

void Host::admit(Visitor& visitor, const Hello& hello) {
  // Its earlier connection, if any, is one that it has given up.
  visitors_.remove_if([&](const Visitor& other) { return other.rank() == hello.rank; });
  register_.enter(hello, clock_.now());
  visitor.become(hello.rank);
  visitor.say(std::make_shared<const Blob>(encode_welcome()));
  if (gathered_ != nullptr) {
    visitor.say(gathered_);
    note_served(visitor);
  }
}

void Host::dismiss(Visitor& visitor, const Refusal& refusal) {
  last_refusal_ = refusal.reason;
  visitor.dismiss(refusal);
}

void Host::remove_departed() {
  const base::Instant now = clock_.now();
  visitors_.remove_if(
      [now](const Visitor& visitor) { return visitor.is_gone() || visitor.is_overdue(now); });
}

void Host::hand_out() {
  gathered_ = std::make_shared<const Blob>(encode_gather(register_.blobs()));
  for (Visitor& visitor : visitors_) {
    if (visitor.rank()) {
      visitor.say(gathered_);
      note_served(visitor);
    }
  }
}

void Host::say_who_is_missing() {
  const base::Instant now = clock_.now();
  if (notice_.is_due(now) && !register_.is_sealed()) {
    log_warn("{}", with_refusal(register_.interim(listening_.text, notice_.waited(now))));
  }
}

std::string Host::with_refusal(std::string sentence) const {
  if (!last_refusal_.empty()) {
    sentence += fmt::format(" (the last one refused was told: {})", last_refusal_);
  }
  return sentence;
}

base::Status Host::give_up() {
  std::string reason = with_refusal(register_.verdict(listening_.text));
  const auto farewell = std::make_shared<const Blob>(encode_failure(reason));
  visitors_.remove_if([](const Visitor& visitor) { return !visitor.rank(); });
  for (Visitor& visitor : visitors_) {
    visitor.say(farewell);
  }
  const base::Instant end = clock_.now() + kFarewell;
  const auto busy = [](const Visitor& visitor) {
    return !visitor.has_said_all() && !visitor.is_gone();
  };
  while (clock_.now() < end && std::any_of(visitors_.begin(), visitors_.end(), busy)) {
    wait_until(end);
    for (Visitor& visitor : visitors_) {
      visitor.flush();
    }
  }
  return {base::StatusCode::kUnavailable, std::move(reason)};
}

// Every rank's connection is a file of this process.
base::Status check_open_files(std::uint32_t world) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < world + kSpareFiles) {
    return {
        base::StatusCode::kLimitExceeded,
        fmt::format("the host of a rendezvous of {} ranks must open as many files, but may open "
                    "only {}: run ulimit -n {} before starting it",
                    world, files.rlim_cur, world + 1024)};
  }
  return {};
}

}  // namespace

base::Result<std::vector<Blob>> host_rendezvous(Listening listening, const Attendance& attendance,
                                                const Blob& own) {
  const base::Status files = check_open_files(attendance.world);
  if (!files.ok()) {
    return files;
  }
  return Host(std::move(listening), attendance, own).run();
}

}  // namespace spillway::runtime
