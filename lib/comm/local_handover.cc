// SPDX-License-Identifier: Apache-2.0
#include "comm/local_handover.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <span>

#include "base/clock.h"

namespace spillway::runtime {
namespace {

constexpr std::uint32_t kNoteMagic = 0x4D4C5053;  // "SPLM"
constexpr std::size_t kMaxDescriptors = 4;        // received per note; the kernel closes the rest
constexpr base::Duration kKnockAgain = base::milliseconds(5);

enum class NoteKind : std::uint16_t { kAsk = 1, kHere = 2, kTaken = 3 };

struct Note {
  std::uint32_t magic = kNoteMagic;
  NoteKind kind = NoteKind::kAsk;
  std::uint16_t rank = 0;
  std::array<char, kMemoryNameDigits> token{};
};
static_assert(sizeof(Note) == 8 + kMemoryNameDigits);

enum class Arrival { kNote, kNothing, kClosed };

struct Received {
  Arrival arrival = Arrival::kNothing;
  Note note;
  net::UniqueFd descriptor;  // if exactly one came with it
};

std::optional<std::string> random_digits() {
  std::array<std::uint8_t, kMemoryNameDigits / 2> bytes{};
  if (!net::fill_random(bytes).ok()) {
    return std::nullopt;
  }
  std::string digits;
  for (const std::uint8_t byte : bytes) {
    digits += fmt::format("{:02x}", byte);
  }
  return digits;
}

struct UnixName {
  sockaddr_un address{};
  socklen_t size = 0;

  const sockaddr* plain() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// An abstract name begins with a zero byte and has no file.
UnixName unix_name(const std::string& name) {
  const std::string whole = "spillway-memory-" + name;
  UnixName result;
  result.address.sun_family = AF_UNIX;
  const std::size_t length = std::min(whole.size(), sizeof(result.address.sun_path) - 1);
  std::memcpy(result.address.sun_path + 1, whole.data(), length);
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return result;
}

net::UniqueFd unix_socket() {
  return net::UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool is_of_this_user(const net::UniqueFd& socket) {
  ucred other{};
  socklen_t size = sizeof(other);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
         size == sizeof(other) && other.uid == ::geteuid();
}

Note note_of(NoteKind kind, std::uint16_t rank, const std::string& token) {
  Note note{.kind = kind, .rank = rank};
  std::copy_n(token.begin(), std::min(token.size(), note.token.size()), note.token.begin());
  return note;
}

// Constant-time comparison.
bool has_token(const Note& note, const std::string& token) {
  return token.size() == note.token.size() &&
         CRYPTO_memcmp(token.data(), note.token.data(), token.size()) == 0;
}

// The socket's buffer is empty before each of the few notes, so a note is sent whole or not at all.
bool send_note(const net::UniqueFd& socket, Note note, const net::UniqueFd* descriptor = nullptr) {
  iovec part{&note, sizeof(note)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = descriptor->get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(note);
}

// Takes ownership of every descriptor, wanted or not.
std::vector<net::UniqueFd> descriptors_of(msghdr& message) {
  std::vector<net::UniqueFd> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

// A note of the wrong length or kind closes the connection: its sender is no rank of this job.
Received receive_note(const net::UniqueFd& socket, NoteKind expected) {
  Received received;
  iovec part{&received.note, sizeof(received.note)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) {
    const bool is_early = errno == EAGAIN || errno == EINTR;
    received.arrival = is_early ? Arrival::kNothing : Arrival::kClosed;
    return received;
  }
  std::vector<net::UniqueFd> descriptors = descriptors_of(message);
  const bool is_good = got == sizeof(Note) && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                       received.note.magic == kNoteMagic && received.note.kind == expected;
  received.arrival = is_good ? Arrival::kNote : Arrival::kClosed;
  if (is_good && descriptors.size() == 1) {
    received.descriptor = std::move(descriptors.front());
  }
  return received;
}

// One handover, both sides of it: this rank connects to its neighbours' doors (calls) and serves
// the neighbours that connect to its own (visits).
class Handover {
 public:
  Handover(MemoryDoor door, const OwnSegment& own, std::span<const RankCard> cards,
           std::uint16_t rank);

  HandoverResult run(base::Duration patience);

 private:
  // This rank's connection to a neighbour's door.
  struct Call {
    enum class State { kKnocking, kAsked, kOver };
    State state = State::kKnocking;
    net::UniqueFd socket{};
  };
  // A connection to this rank's door; the neighbour is known once it has asked.
  struct Visit {
    net::UniqueFd socket{};
    std::optional<std::size_t> neighbour{};
  };

  const MemoryCard& card_of(std::size_t neighbour) const {
    return cards_[result_.neighbours[neighbour].rank].memory;
  }
  bool is_settled() const;
  void knock(std::size_t neighbour);
  void hear_answer(std::size_t neighbour);
  void give_up(std::size_t neighbour, const std::string& why);
  void let_in();
  bool hear(Visit& visit);
  bool hear_question(Visit& visit, const Received& received);
  void wait(base::Instant until) const;

  MemoryDoor door_;
  const OwnSegment& own_;
  std::span<const RankCard> cards_;
  std::uint16_t rank_;
  HandoverResult result_;
  std::vector<Call> calls_;       // by neighbour
  std::vector<bool> was_served_;  // by neighbour: it can read, or it never will
  std::list<Visit> visits_;
};

Handover::Handover(MemoryDoor door, const OwnSegment& own, std::span<const RankCard> cards,
                   std::uint16_t rank)
    : door_(std::move(door)), own_(own), cards_(cards), rank_(rank) {
  for (std::size_t peer = 0; peer < cards.size(); ++peer) {
    if (peer != rank && may_share(cards[peer], cards[rank])) {
      result_.neighbours.push_back({.rank = static_cast<std::uint16_t>(peer)});
    }
  }
  calls_.resize(result_.neighbours.size());
  was_served_.resize(result_.neighbours.size());
}

bool Handover::is_settled() const {
  return std::all_of(calls_.begin(), calls_.end(),
                     [](const Call& call) { return call.state == Call::State::kOver; }) &&
         std::all_of(was_served_.begin(), was_served_.end(), [](bool served) { return served; });
}

// A neighbour opens its door before it sends its card, and closes it once all are served. A closed
// door therefore stays closed, and that neighbour will not connect to this rank.
void Handover::knock(std::size_t neighbour) {
  Call& call = calls_[neighbour];
  const UnixName name = unix_name(card_of(neighbour).name);
  call.socket = unix_socket();
  if (!call.socket.valid()) {
    give_up(neighbour, fmt::format("no socket: {}", std::strerror(errno)));
    return;
  }
  if (::connect(call.socket.get(), name.plain(), name.size) != 0) {
    if (errno != EAGAIN && errno != EINTR) {  // else its backlog is full
      was_served_[neighbour] = true;
      give_up(neighbour, fmt::format("its door is closed: {}", std::strerror(errno)));
    }
    return;
  }
  if (!is_of_this_user(call.socket)) {
    was_served_[neighbour] = true;
    give_up(neighbour, "it belongs to another user");
    return;
  }
  if (!send_note(call.socket, note_of(NoteKind::kAsk, rank_, card_of(neighbour).token))) {
    give_up(neighbour, "it cannot be asked");
    return;
  }
  call.state = Call::State::kAsked;
}

void Handover::hear_answer(std::size_t neighbour) {
  Call& call = calls_[neighbour];
  Neighbour& owner = result_.neighbours[neighbour];
  const Received received = receive_note(call.socket, NoteKind::kHere);
  if (received.arrival == Arrival::kNothing) {
    return;
  }
  if (received.arrival == Arrival::kClosed || received.note.rank != owner.rank ||
      !has_token(received.note, door_.token()) || !received.descriptor.valid()) {
    give_up(neighbour, "its answer is wrong, or missing");
    return;
  }
  base::Result<SharedSegment> segment = SharedSegment::open(received.descriptor);
  if (!segment.ok()) {
    give_up(neighbour, segment.status().message());
    return;
  }
  owner.segment = std::move(segment).value();
  call.state = Call::State::kOver;
  // If this note is lost, the owner does not rely on this reader, and the data uses sockets.
  static_cast<void>(
      send_note(call.socket, note_of(NoteKind::kTaken, rank_, card_of(neighbour).token)));
  call.socket = {};
}

void Handover::give_up(std::size_t neighbour, const std::string& why) {
  calls_[neighbour].state = Call::State::kOver;
  calls_[neighbour].socket = {};
  result_.neighbours[neighbour].trouble = why;
}

void Handover::let_in() {
  while (true) {
    net::UniqueFd socket(
        ::accept4(door_.socket().get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      return;
    }
    const auto strangers = static_cast<std::size_t>(std::count_if(
        visits_.begin(), visits_.end(), [](const Visit& visit) { return !visit.neighbour; }));
    if (strangers >= kMaxMemoryStrangers || !is_of_this_user(socket)) {
      ++result_.turned_away;
      continue;
    }
    visits_.push_back({.socket = std::move(socket)});
    if (!hear(visits_.back())) {
      visits_.pop_back();
    }
  }
}

// Returns false when the visit is over.
bool Handover::hear(Visit& visit) {
  const Received received =
      receive_note(visit.socket, visit.neighbour ? NoteKind::kTaken : NoteKind::kAsk);
  if (received.arrival == Arrival::kNothing) {
    return true;
  }
  if (!visit.neighbour) {
    return hear_question(visit, received);
  }
  Neighbour& neighbour = result_.neighbours[*visit.neighbour];
  neighbour.reads_us = received.arrival == Arrival::kNote && received.note.rank == neighbour.rank &&
                       has_token(received.note, door_.token());
  if (!neighbour.reads_us && neighbour.trouble.empty()) {
    neighbour.trouble = "it did not take this rank's segment";
  }
  was_served_[*visit.neighbour] = true;
  return false;
}

bool Handover::hear_question(Visit& visit, const Received& received) {
  const auto asks = std::find_if(
      result_.neighbours.begin(), result_.neighbours.end(), [&](const Neighbour& neighbour) {
        return received.arrival == Arrival::kNote && neighbour.rank == received.note.rank;
      });
  if (asks == result_.neighbours.end() || !has_token(received.note, door_.token())) {
    ++result_.turned_away;
    return false;
  }
  const auto neighbour = static_cast<std::size_t>(asks - result_.neighbours.begin());
  const bool is_here = std::any_of(visits_.begin(), visits_.end(), [&](const Visit& other) {
    return other.neighbour == neighbour;
  });
  if (is_here || was_served_[neighbour]) {
    return false;
  }
  if (!send_note(visit.socket, note_of(NoteKind::kHere, rank_, card_of(neighbour).token),
                 &own_.descriptor())) {
    was_served_[neighbour] = true;  // it asks only once, and has left
    return false;
  }
  visit.neighbour = neighbour;
  return true;
}

void Handover::wait(base::Instant until) const {
  std::vector<pollfd> waiting = {{.fd = door_.socket().get(), .events = POLLIN, .revents = 0}};
  bool knocks = false;
  for (const Call& call : calls_) {
    knocks = knocks || call.state == Call::State::kKnocking;
    if (call.state == Call::State::kAsked) {
      waiting.push_back({.fd = call.socket.get(), .events = POLLIN, .revents = 0});
    }
  }
  for (const Visit& visit : visits_) {
    waiting.push_back({.fd = visit.socket.get(), .events = POLLIN, .revents = 0});
  }
  const base::Duration left = until - base::MonotonicClock().now();
  const timespec time = net::timespec_of(knocks ? std::min(left, kKnockAgain) : left);
  ::ppoll(waiting.data(), waiting.size(), &time, nullptr);
}

HandoverResult Handover::run(base::Duration patience) {
  const base::Instant until = base::MonotonicClock().now() + patience;
  while (true) {
    for (std::size_t neighbour = 0; neighbour < calls_.size(); ++neighbour) {
      if (calls_[neighbour].state == Call::State::kKnocking) {
        knock(neighbour);
      }
      if (calls_[neighbour].state == Call::State::kAsked) {
        hear_answer(neighbour);
      }
    }
    visits_.remove_if([this](Visit& visit) { return !hear(visit); });
    let_in();
    if (is_settled() || base::MonotonicClock().now() >= until) {
      break;
    }
    wait(until);
  }
  for (Neighbour& neighbour : result_.neighbours) {
    if (neighbour.trouble.empty() && (!neighbour.segment || !neighbour.reads_us)) {
      neighbour.trouble = "it was silent";
    }
  }
  return std::move(result_);
}

}  // namespace

base::Result<MemoryDoor> MemoryDoor::open() {
  std::optional<std::string> name = random_digits();
  std::optional<std::string> token = random_digits();
  net::UniqueFd socket = unix_socket();
  if (!name || !token || !socket.valid()) {
    return net::system_error("open a door for shared memory", errno);
  }
  const UnixName address = unix_name(*name);
  if (::bind(socket.get(), address.plain(), address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return net::system_error("open a door for shared memory", errno);
  }
  return MemoryDoor(std::move(socket), std::move(*name), std::move(*token));
}

HandoverResult hand_over(MemoryDoor door, const OwnSegment& own, std::span<const RankCard> cards,
                         std::uint16_t rank, base::Duration patience) {
  return Handover(std::move(door), own, cards, rank).run(patience);
}

}  // namespace spillway::runtime
