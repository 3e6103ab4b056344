// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/host.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "comm/rendezvous/message.h"
#include "comm/rendezvous/notice.h"
#include "comm/rendezvous/visitor.h"
#include "net/stranger_book.h"
#include "observe/log.h"

namespace spillway::runtime {
namespace {

// How long the host waits for the other ranks to receive a failure.
constexpr base::Duration kFarewell = base::seconds(1);
// File descriptors left for the rest of the process.
constexpr std::uint64_t kSpareFiles = 32;
// Pause if all descriptors are in use and no connection can be closed.
constexpr int kCrowdedPauseMs = 10;

class Host {
 public:
  Host(Listening listening, const Attendance& attendance, const Credential& credential,
       const Blob& own)
      : listening_(std::move(listening)),
        credential_(credential),
        register_(attendance, own, clock_.now()) {}

  base::Result<Meeting> run();

 private:
  void wait_until(base::Instant when);
  void accept_newcomers();
  bool make_room(const std::string& source);
  void displace(net::StrangerBook::Id stranger);
  void serve(Visitor& visitor);
  void note_served(const Visitor& visitor);
  void hear(Visitor& visitor, const Frame& frame);
  void admit(Visitor& visitor, const Hello& hello);
  void dismiss(Visitor& visitor, const Refusal& refusal);
  void turn_away(Visitor& visitor, const base::Status& why);
  template <typename Predicate>
  void remove_visitors(const Predicate& goes);
  void remove_departed();
  base::Status hand_out();
  void tell_everything(Visitor& visitor);
  void say_who_is_missing();
  void say_who_was_strange() const;
  std::string with_refusals(std::string sentence) const;
  base::Status give_up();

  base::MonotonicClock clock_;
  Listening listening_;
  const Credential& credential_;
  Register register_;
  std::list<Visitor> visitors_;  // in order of arrival
  // Visitors that are no ranks.
  net::StrangerBook book_{
      net::StrangerBook::most_of(net::StrangerBook::files_of_process(), kStrangerBytes),
      net::StrangerBook::of_process(), kHandshakeGrace};
  net::StrangerBook::Id next_visitor_ = 0;
  std::optional<Gather> gather_{};                      // set once all ranks have come
  std::vector<std::shared_ptr<const Frame>> frames_{};  // the encoded gather
  std::string last_refusal_{};
  StrangerCounts strangers_{};
  WaitNotice notice_{clock_.now()};
};

base::Result<Meeting> Host::run() {
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
    if (register_.is_sealed() && !gather_) {
      if (base::Status status = hand_out(); !status.ok()) {
        return status;
      }
    }
    say_who_is_missing();
  }
  say_who_was_strange();
  base::Result<Meeting> met = meeting_of(credential_, *gather_);
  if (!met.ok()) {
    return met.status();
  }
  Meeting meeting = std::move(met).value();
  meeting.strangers = strangers_;
  return meeting;
}

// Waits for an event, but checks often enough to remove overdue strangers.
void Host::wait_until(base::Instant when) {
  std::vector<pollfd> waiting = {{listening_.socket.get(), POLLIN, 0}};
  bool anybody_to_remove = false;
  for (const Visitor& visitor : visitors_) {
    waiting.push_back({visitor.fd(), visitor.wanted_events(), 0});
    anybody_to_remove = anybody_to_remove || !visitor.rank();
  }
  base::Duration patience = when - clock_.now();
  patience = anybody_to_remove ? std::min(patience, kDismissedPatience / 4) : patience;
  const std::int64_t ms = std::clamp<std::int64_t>(patience.count() / 1'000'000 + 1, 0, 60'000);
  ::poll(waiting.data(), waiting.size(), static_cast<int>(ms));
  auto polled = waiting.cbegin() + 1;
  for (Visitor& visitor : visitors_) {
    visitor.set_ready((polled++)->revents != 0);
  }
}

void Host::accept_newcomers() {
  for (std::size_t count = 0; count < kMaxNewcomers; ++count) {
    Newcomer newcomer = accept_from(listening_.socket);
    if (newcomer.is_crowded) {
      const std::optional<net::StrangerBook::Id> leaves = book_.first_to_leave(clock_.now());
      if (!leaves) {
        // The client stays in the backlog, so a pause is needed: poll() would return at once.
        ::poll(nullptr, 0, kCrowdedPauseMs);
        return;
      }
      displace(*leaves);
      continue;
    }
    const base::Result<Random> random = draw_random();
    if (!newcomer.socket.valid() || !random.ok()) {
      return;
    }
    if (!make_room(newcomer.source)) {
      ++strangers_[StrangerKind::kCrowded];
      continue;
    }
    book_.add(next_visitor_, newcomer.source, clock_.now());
    visitors_.emplace_back(next_visitor_++, std::move(newcomer),
                           HostHandshake(credential_, *random), clock_.now() + kStrangerPatience);
  }
}

// False if a newcomer from `source` must be turned away.
bool Host::make_room(const std::string& source) {
  // Ends, because displace() changes what the book says.
  for (;;) {
    const net::StrangerBook::Room room = book_.room_for(source, clock_.now());
    if (!room.leaves) {
      return room.is_free;
    }
    displace(*room.leaves);
  }
}

// Closes a stranger, unless what it has sent meanwhile makes it a rank or gets its first answer.
void Host::displace(net::StrangerBook::Id stranger) {
  const auto found = std::find_if(visitors_.begin(), visitors_.end(),
                                  [&](const Visitor& visitor) { return visitor.id() == stranger; });
  const bool was_answered = found->was_answered();
  serve(*found);
  if (found->rank() || found->was_answered() != was_answered) {
    return;
  }
  const StrangerKind kind = was_answered ? StrangerKind::kCrowded : StrangerKind::kSilent;
  strangers_[kind] += found->is_stranger() ? 1 : 0;
  book_.remove(stranger);
  visitors_.erase(found);
}

void Host::serve(Visitor& visitor) {
  visitor.flush();
  note_served(visitor);
  visitor.read();
  while (visitor.is_stranger()) {
    const base::Result<std::optional<Frame>> heard = visitor.next();
    if (!heard.ok()) {
      turn_away(visitor, heard.status());
    } else if (heard->has_value()) {
      hear(visitor, **heard);
    } else {
      break;
    }
  }
  if (visitor.was_answered()) {
    book_.answered(visitor.id());
  }
  if (visitor.rank() && visitor.is_gone()) {
    register_.leave(*visitor.rank());
  }
}

// Called before reading: a guest leaves as soon as it has received everything.
void Host::note_served(const Visitor& visitor) {
  if (visitor.rank() && gather_ && visitor.has_said_all() && !visitor.is_gone()) {
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
  // The rank has given up its earlier connection, if any.
  remove_visitors([&](const Visitor& other) { return other.rank() == hello.rank; });
  register_.enter(hello, clock_.now());
  visitor.become(hello.rank);
  book_.remove(visitor.id());
  visitor.say(std::make_shared<const Frame>(encode_welcome()));
  if (gather_) {
    tell_everything(visitor);
  }
}

// Rejects a rank that cannot take part. It has proved the key (if there is one), so it may learn
// why.
void Host::dismiss(Visitor& visitor, const Refusal& refusal) {
  last_refusal_ = refusal.reason;
  visitor.dismiss(refusal, clock_.now() + kStrangerPatience);
}

// Rejects a stranger. Never final: the refusal is not authenticated.
void Host::turn_away(Visitor& visitor, const base::Status& why) {
  ++strangers_[visitor.fault()];
  last_refusal_ = why.message();
  visitor.dismiss({false, why.message()}, clock_.now() + kDismissedPatience);
}

template <typename Predicate>
void Host::remove_visitors(const Predicate& goes) {
  visitors_.remove_if([&](const Visitor& visitor) {
    const bool is_over = goes(visitor);
    if (is_over) {
      book_.remove(visitor.id());
    }
    return is_over;
  });
}

void Host::remove_departed() {
  const base::Instant now = clock_.now();
  remove_visitors([&](const Visitor& visitor) {
    const bool is_silent = visitor.is_stranger() && visitor.is_overdue(now) && !visitor.is_gone();
    strangers_[StrangerKind::kSilent] += is_silent ? 1 : 0;
    return visitor.is_gone() || visitor.is_overdue(now);
  });
}

base::Status Host::hand_out() {
  base::Result<wire::RunKey> drawn = draw_key();
  if (!drawn.ok()) {
    return drawn.status();
  }
  gather_ = register_.gather();
  gather_->drawn = *drawn;
  for (Frame& frame : encode(*gather_)) {
    frames_.push_back(std::make_shared<const Frame>(std::move(frame)));
  }
  for (Visitor& visitor : visitors_) {
    if (visitor.rank()) {
      tell_everything(visitor);
    }
  }
  return {};
}

void Host::tell_everything(Visitor& visitor) {
  for (const std::shared_ptr<const Frame>& frame : frames_) {
    visitor.say(frame);
  }
  note_served(visitor);
}

void Host::say_who_is_missing() {
  const base::Instant now = clock_.now();
  if (notice_.is_due(now) && !register_.is_sealed()) {
    log_warn("{}", with_refusals(register_.interim(listening_.text, notice_.waited(now))));
  }
}

// Port scanners are normal; clients that fail to prove the key are worth a warning.
void Host::say_who_was_strange() const {
  if (strangers_.total() == 0) {
    return;
  }
  const bool is_news = strangers_[StrangerKind::kUnproven] + strangers_[StrangerKind::kKeying] != 0;
  log(is_news ? LogLevel::kWarn : LogLevel::kInfo,
      is_news ? LogSubsystem::kInit : LogSubsystem::kBootstrap,
      "all ranks met at {}; of others who came there, {}", listening_.text, strangers_.to_string());
}

std::string Host::with_refusals(std::string sentence) const {
  if (!last_refusal_.empty()) {
    sentence += fmt::format(" (the last one refused was told: {})", last_refusal_);
  }
  if (strangers_.total() != 0) {
    sentence += fmt::format(" ({})", strangers_.to_string());
  }
  return sentence;
}

base::Status Host::give_up() {
  std::string reason = with_refusals(register_.verdict(listening_.text));
  const auto farewell = std::make_shared<const Frame>(encode_failure(reason));
  remove_visitors([](const Visitor& visitor) { return !visitor.rank(); });
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

// Every rank's connection takes one file descriptor of this process.
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

base::Result<Meeting> host_rendezvous(Listening listening, const Attendance& attendance,
                                      const Credential& credential, const Blob& own) {
  const base::Status files = check_open_files(attendance.world);
  if (!files.ok()) {
    return files;
  }
  return Host(std::move(listening), attendance, credential, own).run();
}

}  // namespace spillway::runtime
