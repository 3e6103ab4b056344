// SPDX-License-Identifier: Apache-2.0
#include "comm/local_memory.h"

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
#include <filesystem>
#include <list>
#include <span>

#include "base/clock.h"
#include "observe/log.h"

namespace spillway::comm {

// ------------------------------------------------------------------ handover

namespace {

constexpr std::uint32_t kNoteMagic = 0x4D4C5053;  // "SPLM"
constexpr std::size_t kMaxDescriptors = 4;        // received per note; the kernel closes the rest
constexpr base::Duration kConnectPause = base::milliseconds(5);

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

// One handover, both sides of it: this rank connects to its neighbours' sockets (calls) and serves
// the neighbours that connect to its own (visits).
class Handover {
 public:
  Handover(MemoryListener listener, const OwnSegment& own, std::span<const RankCard> cards,
           std::uint16_t rank);

  HandoverResult run(base::Duration patience);

 private:
  // This rank's connection to a neighbour's socket.
  struct OutgoingLink {
    enum class State { kConnecting, kAsked, kOver };
    State state = State::kConnecting;
    net::UniqueFd socket{};
  };
  // A connection to this rank's socket; the neighbour is known once it has asked.
  struct IncomingLink {
    net::UniqueFd socket{};
    std::optional<std::size_t> neighbour{};
  };

  const MemoryCard& card_of(std::size_t neighbour) const {
    return cards_[result_.neighbours[neighbour].rank].memory;
  }
  bool is_settled() const;
  void connect_to_owner(std::size_t neighbour);
  void receive_segment(std::size_t neighbour);
  void fail(std::size_t neighbour, const std::string& why);
  void accept_neighbours();
  bool handle(IncomingLink& link);
  bool handle_ask(IncomingLink& link, const Received& received);
  void wait(base::Instant until) const;

  MemoryListener listener_;
  const OwnSegment& own_;
  std::span<const RankCard> cards_;
  std::uint16_t rank_;
  HandoverResult result_;
  std::vector<OutgoingLink> outgoing_;  // by neighbour
  std::vector<bool> was_served_;        // by neighbour: it can read, or it never will
  std::list<IncomingLink> incoming_;
};

Handover::Handover(MemoryListener listener, const OwnSegment& own, std::span<const RankCard> cards,
                   std::uint16_t rank)
    : listener_(std::move(listener)), own_(own), cards_(cards), rank_(rank) {
  for (std::size_t peer = 0; peer < cards.size(); ++peer) {
    if (peer != rank && may_share(cards[peer], cards[rank])) {
      result_.neighbours.push_back({.rank = static_cast<std::uint16_t>(peer)});
    }
  }
  outgoing_.resize(result_.neighbours.size());
  was_served_.resize(result_.neighbours.size());
}

bool Handover::is_settled() const {
  return std::all_of(
             outgoing_.begin(), outgoing_.end(),
             [](const OutgoingLink& link) { return link.state == OutgoingLink::State::kOver; }) &&
         std::all_of(was_served_.begin(), was_served_.end(), [](bool served) { return served; });
}

// A neighbour listens before it sends its card, and stops once all are served. A closed
// socket therefore stays closed, and that neighbour will not connect to this rank.
void Handover::connect_to_owner(std::size_t neighbour) {
  OutgoingLink& link = outgoing_[neighbour];
  const UnixName name = unix_name(card_of(neighbour).name);
  link.socket = unix_socket();
  if (!link.socket.valid()) {
    fail(neighbour, fmt::format("no socket: {}", std::strerror(errno)));
    return;
  }
  if (::connect(link.socket.get(), name.plain(), name.size) != 0) {
    if (errno != EAGAIN && errno != EINTR) {  // else its backlog is full
      was_served_[neighbour] = true;
      fail(neighbour, fmt::format("its socket is closed: {}", std::strerror(errno)));
    }
    return;
  }
  if (!is_of_this_user(link.socket)) {
    was_served_[neighbour] = true;
    fail(neighbour, "it belongs to another user");
    return;
  }
  if (!send_note(link.socket, note_of(NoteKind::kAsk, rank_, card_of(neighbour).token))) {
    fail(neighbour, "it cannot be asked");
    return;
  }
  link.state = OutgoingLink::State::kAsked;
}

void Handover::receive_segment(std::size_t neighbour) {
  OutgoingLink& link = outgoing_[neighbour];
  Neighbour& owner = result_.neighbours[neighbour];
  const Received received = receive_note(link.socket, NoteKind::kHere);
  if (received.arrival == Arrival::kNothing) {
    return;
  }
  if (received.arrival == Arrival::kClosed || received.note.rank != owner.rank ||
      !has_token(received.note, listener_.token()) || !received.descriptor.valid()) {
    fail(neighbour, "its answer is wrong, or missing");
    return;
  }
  base::Result<SharedSegment> segment = SharedSegment::open(received.descriptor);
  if (!segment.ok()) {
    fail(neighbour, segment.status().message());
    return;
  }
  owner.segment = std::move(segment).value();
  link.state = OutgoingLink::State::kOver;
  // If this note is lost, the owner does not rely on this reader, and the data uses sockets.
  static_cast<void>(
      send_note(link.socket, note_of(NoteKind::kTaken, rank_, card_of(neighbour).token)));
  link.socket = {};
}

void Handover::fail(std::size_t neighbour, const std::string& why) {
  outgoing_[neighbour].state = OutgoingLink::State::kOver;
  outgoing_[neighbour].socket = {};
  result_.neighbours[neighbour].trouble = why;
}

void Handover::accept_neighbours() {
  while (true) {
    net::UniqueFd socket(
        ::accept4(listener_.socket().get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      return;
    }
    const auto strangers = static_cast<std::size_t>(
        std::count_if(incoming_.begin(), incoming_.end(),
                      [](const IncomingLink& link) { return !link.neighbour; }));
    if (strangers >= kMaxMemoryStrangers || !is_of_this_user(socket)) {
      ++result_.rejected;
      continue;
    }
    incoming_.push_back({.socket = std::move(socket)});
    if (!handle(incoming_.back())) {
      incoming_.pop_back();
    }
  }
}

// Returns false when the visit is over.
bool Handover::handle(IncomingLink& link) {
  const Received received =
      receive_note(link.socket, link.neighbour ? NoteKind::kTaken : NoteKind::kAsk);
  if (received.arrival == Arrival::kNothing) {
    return true;
  }
  if (!link.neighbour) {
    return handle_ask(link, received);
  }
  Neighbour& neighbour = result_.neighbours[*link.neighbour];
  neighbour.reads_us = received.arrival == Arrival::kNote && received.note.rank == neighbour.rank &&
                       has_token(received.note, listener_.token());
  if (!neighbour.reads_us && neighbour.trouble.empty()) {
    neighbour.trouble = "it did not take this rank's segment";
  }
  was_served_[*link.neighbour] = true;
  return false;
}

bool Handover::handle_ask(IncomingLink& link, const Received& received) {
  const auto asks = std::find_if(
      result_.neighbours.begin(), result_.neighbours.end(), [&](const Neighbour& neighbour) {
        return received.arrival == Arrival::kNote && neighbour.rank == received.note.rank;
      });
  if (asks == result_.neighbours.end() || !has_token(received.note, listener_.token())) {
    ++result_.rejected;
    return false;
  }
  const auto neighbour = static_cast<std::size_t>(asks - result_.neighbours.begin());
  const bool is_here =
      std::any_of(incoming_.begin(), incoming_.end(),
                  [&](const IncomingLink& other) { return other.neighbour == neighbour; });
  if (is_here || was_served_[neighbour]) {
    return false;
  }
  if (!send_note(link.socket, note_of(NoteKind::kHere, rank_, card_of(neighbour).token),
                 &own_.descriptor())) {
    was_served_[neighbour] = true;  // it asks only once, and has left
    return false;
  }
  link.neighbour = neighbour;
  return true;
}

void Handover::wait(base::Instant until) const {
  std::vector<pollfd> waiting = {{.fd = listener_.socket().get(), .events = POLLIN, .revents = 0}};
  bool retries = false;
  for (const OutgoingLink& link : outgoing_) {
    retries = retries || link.state == OutgoingLink::State::kConnecting;
    if (link.state == OutgoingLink::State::kAsked) {
      waiting.push_back({.fd = link.socket.get(), .events = POLLIN, .revents = 0});
    }
  }
  for (const IncomingLink& link : incoming_) {
    waiting.push_back({.fd = link.socket.get(), .events = POLLIN, .revents = 0});
  }
  const base::Duration left = until - base::MonotonicClock().now();
  const timespec time = net::timespec_of(retries ? std::min(left, kConnectPause) : left);
  ::ppoll(waiting.data(), waiting.size(), &time, nullptr);
}

HandoverResult Handover::run(base::Duration patience) {
  const base::Instant until = base::MonotonicClock().now() + patience;
  while (true) {
    for (std::size_t neighbour = 0; neighbour < outgoing_.size(); ++neighbour) {
      if (outgoing_[neighbour].state == OutgoingLink::State::kConnecting) {
        connect_to_owner(neighbour);
      }
      if (outgoing_[neighbour].state == OutgoingLink::State::kAsked) {
        receive_segment(neighbour);
      }
    }
    incoming_.remove_if([this](IncomingLink& link) { return !handle(link); });
    accept_neighbours();
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

base::Result<MemoryListener> MemoryListener::open() {
  std::optional<std::string> name = random_digits();
  std::optional<std::string> token = random_digits();
  net::UniqueFd socket = unix_socket();
  if (!name || !token || !socket.valid()) {
    return net::system_error("open a socket for shared memory", errno);
  }
  const UnixName address = unix_name(*name);
  if (::bind(socket.get(), address.plain(), address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return net::system_error("open a socket for shared memory", errno);
  }
  return MemoryListener(std::move(socket), std::move(*name), std::move(*token));
}

HandoverResult hand_over(MemoryListener listener, const OwnSegment& own,
                         std::span<const RankCard> cards, std::uint16_t rank,
                         base::Duration patience) {
  return Handover(std::move(listener), own, cards, rank).run(patience);
}

// ------------------------------------------------------------------ shared memory

namespace {

std::string network_namespace() {
  std::error_code error;
  const std::filesystem::path link = std::filesystem::read_symlink("/proc/self/ns/net", error);
  return error ? "" : link.string();
}

// One log line for all neighbours: not sharing only costs speed.
void log_troubles(const HandoverResult& result) {
  std::string troubles;
  for (const Neighbour& neighbour : result.neighbours) {
    if (!neighbour.trouble.empty()) {
      troubles +=
          fmt::format("{}{} ({})", troubles.empty() ? "" : ", ", neighbour.rank, neighbour.trouble);
    }
  }
  if (!troubles.empty()) {
    observe::log_warn(
        "memory is not shared with rank {}: sockets are used instead, which is slower", troubles);
  }
  if (result.rejected > 0) {
    observe::log_info(observe::LogSubsystem::kInit,
                      "{} that are no rank of this job asked for its memory", result.rejected);
  }
}

}  // namespace

std::string memory_domain() {
  const std::string network = network_namespace();
  return network.empty() ? "" : fmt::format("{}/{}/{}", machine_name(), network, ::geteuid());
}

base::Result<MemoryOffer> MemoryOffer::make() {
  std::string domain = memory_domain();
  if (domain.empty()) {
    return base::Status(base::StatusCode::kUnavailable,
                        "/proc does not tell which network is used");
  }
  base::Result<OwnSegment> segment = OwnSegment::make();
  if (!segment.ok()) {
    return segment.status();
  }
  base::Result<MemoryListener> listener = MemoryListener::open();
  if (!listener.ok()) {
    return listener.status();
  }
  return MemoryOffer{std::move(domain), std::move(segment).value(), std::move(listener).value()};
}

LocalMemory LocalMemory::share(MemoryOffer offer, std::span<const RankCard> cards,
                               std::uint16_t rank, base::Duration patience) {
  LocalMemory memory(std::move(offer.segment), cards.size());
  HandoverResult result = hand_over(std::move(offer.listener), memory.own_, cards, rank, patience);
  log_troubles(result);
  for (Neighbour& neighbour : result.neighbours) {
    memory.neighbours_[neighbour.rank] = std::move(neighbour);
  }
  return memory;
}

bool LocalMemory::read(std::uint16_t peer, const collective::MemoryPlace& place,
                       base::MutableByteView to) {
  const bool is_there = peer < neighbours_.size() && neighbours_[peer] &&
                        neighbours_[peer]->segment && place.bytes == to.size() &&
                        neighbours_[peer]->segment->read(place.offset, to);
  if (is_there) {
    return true;
  }
  ++refused_;
  if (!failure_) {
    failure_ = {peer,
                {base::StatusCode::kPeerFailed,
                 fmt::format("rank {} says that {} bytes lie at offset {} of its segment, where "
                             "{} are due and {} end: refused. Where all ranks run one version, set "
                             "SPILLWAY_LOCAL_COPY=0 at every rank",
                             peer, place.bytes, place.offset, to.size(), kSegmentBytes)}};
  }
  return false;
}

namespace {

// If the launch sends this rank's packets elsewhere than to where it listens, something stands
// between the ranks: they are meant to use the network.
bool is_relayed(const launch::Launch& launch) {
  return !launch.peers.empty() && (!launch.listen || launch.peers[launch.rank] != *launch.listen);
}

}  // namespace

std::optional<MemoryOffer> offer_memory(const Preparation& preparation) {
  if (!preparation.local_copy || is_relayed(preparation.launch) || preparation.group.world == 1) {
    return std::nullopt;
  }
  base::Result<MemoryOffer> offer = MemoryOffer::make();
  if (!offer.ok()) {
    observe::log_warn("memory is not shared with ranks of this machine: {}",
                      offer.status().message());
    return std::nullopt;
  }
  return std::move(offer).value();
}

std::unique_ptr<LocalMemory> memory_of(std::optional<MemoryOffer> offer,
                                       std::span<const RankCard> cards, std::uint16_t rank,
                                       base::Duration patience) {
  const bool has_neighbours = std::any_of(cards.begin(), cards.end(), [&](const RankCard& card) {
    return &card != &cards[rank] && may_share(card, cards[rank]);
  });
  if (!offer || !has_neighbours) {
    return nullptr;
  }
  return std::make_unique<LocalMemory>(
      LocalMemory::share(std::move(*offer), cards, rank, patience));
}

}  // namespace spillway::comm
