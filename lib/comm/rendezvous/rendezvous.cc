// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>

#include "base/bytes.h"
#include "base/environment.h"
#include "comm/rendezvous/register.h"
#include "comm/rendezvous/socket.h"
#include "launch/launch.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::comm {

// ------------------------------------------------------------------ unique ids

namespace {

constexpr std::uint64_t kIdMagic = 0x5941'574C'4C49'5053;  // "SPILLWAY"
constexpr std::uint16_t kFormat = 1;
constexpr std::size_t kAddressBytes = 16;
constexpr std::size_t kReservedBytes = 76;
constexpr std::size_t kCheckedBytes = 124;
static_assert(8 + 2 + 2 + 2 + 2 + kAddressBytes + 16 + kReservedBytes == kCheckedBytes);

// CRC32C of the bytes before it. Bit by bit is fast enough: an id is checked once.
std::uint32_t check_of(const UniqueId& id) {
  std::uint32_t state = ~0U;
  for (const std::uint8_t byte : base::ByteView(id.bytes).first(kCheckedBytes)) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = state >> 1 ^ ((state & 1U) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~state;
}

// Listening sockets of ids that no rank has joined yet. Each entry names the maker's process: a
// forked child has a copy of this table, but must not answer for its parent.
class UnusedListeners {
 public:
  static UnusedListeners& of_process() {
    static UnusedListeners listeners;
    return listeners;
  }

  bool keep(const launch::Nonce& nonce, net::UniqueFd socket) {
    const std::lock_guard lock(mutex_);
    if (sockets_.size() >= kMaxUnusedIds) {
      return false;
    }
    sockets_.emplace(nonce, Entry{::getpid(), std::move(socket)});
    return true;
  }

  net::UniqueFd take(const launch::Nonce& nonce) {
    const std::lock_guard lock(mutex_);
    const auto found = sockets_.find(nonce);
    if (found == sockets_.end() || found->second.maker != ::getpid()) {
      return {};
    }
    net::UniqueFd socket = std::move(found->second.socket);
    sockets_.erase(found);
    return socket;
  }

 private:
  struct Entry {
    pid_t maker = 0;
    net::UniqueFd socket{};
  };

  std::mutex mutex_;
  std::map<launch::Nonce, Entry> sockets_;
};

std::array<std::uint8_t, kAddressBytes> address_bytes(const net::SocketAddress& address) {
  std::array<std::uint8_t, kAddressBytes> bytes{};
  if (address.is_ipv6()) {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address.data())->sin6_addr,
                16);
  } else {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(address.data())->sin_addr, 4);
  }
  return bytes;
}

net::SocketAddress address_from(bool ipv6, base::ByteView bytes, std::uint16_t port) {
  sockaddr_storage storage{};
  if (ipv6) {
    storage.ss_family = AF_INET6;
    std::memcpy(&reinterpret_cast<sockaddr_in6&>(storage).sin6_addr, bytes.data(), 16);
  } else {
    storage.ss_family = AF_INET;
    std::memcpy(&reinterpret_cast<sockaddr_in&>(storage).sin_addr, bytes.data(), 4);
  }
  return net::SocketAddress::from(storage).with_port(port);
}

base::Result<net::SocketAddress> bound_address(const net::UniqueFd& socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return net::system_error("learn the port of a unique id", errno);
  }
  return net::SocketAddress::from(bound);
}

}  // namespace

base::Result<UniqueId> create_unique_id(const net::SocketAddress& address) {
  base::Result<net::UniqueFd> socket = listen_exactly(address);
  if (!socket.ok()) {
    return socket.status();
  }
  const base::Result<net::SocketAddress> bound = bound_address(*socket);
  const base::Result<launch::Nonce> nonce = launch::random_nonce();
  if (!bound.ok() || !nonce.ok()) {
    return bound.ok() ? nonce.status() : bound.status();
  }
  if (!UnusedListeners::of_process().keep(*nonce, std::move(socket).value())) {
    return base::Status(base::StatusCode::kLimitExceeded,
                        fmt::format("this process has made {} unique ids that no rank has joined: "
                                    "join or discard them first",
                                    kMaxUnusedIds));
  }
  return encode_unique_id({*bound, *nonce});
}

void discard_unique_id(const UniqueId& id) {
  const base::Result<UniqueIdContent> content = parse_unique_id(id);
  if (content.ok()) {
    UnusedListeners::of_process().take(content->nonce);
  }
}

UniqueId encode_unique_id(const UniqueIdContent& content) {
  UniqueId id;
  base::ByteWriter writer(id.bytes);
  writer.write(kIdMagic);
  writer.write(kFormat);
  writer.write<std::uint16_t>(content.address.is_ipv6() ? 6 : 4);
  writer.write(content.address.port());
  writer.write<std::uint16_t>(0);
  writer.append(address_bytes(content.address));
  writer.append(content.nonce);
  writer.reserve(kReservedBytes);
  writer.write(check_of(id));
  return id;
}

base::Result<UniqueIdContent> parse_unique_id(const UniqueId& id) {
  base::ByteReader reader(id.bytes);
  const auto magic = reader.read<std::uint64_t>();
  const auto format = reader.read<std::uint16_t>();
  const auto family = reader.read<std::uint16_t>();
  const auto port = reader.read<std::uint16_t>();
  reader.take(2);
  const base::ByteView address = reader.take(kAddressBytes);
  UniqueIdContent content;
  const base::ByteView nonce = reader.take(content.nonce.size());
  std::copy(nonce.begin(), nonce.end(), content.nonce.begin());
  reader.take(kReservedBytes);
  if (magic != kIdMagic || reader.read<std::uint32_t>() != check_of(id)) {
    return base::Status(base::StatusCode::kMalformed,
                        "these bytes are no unique id of Spillway: hand over all 128, as they were "
                        "made");
  }
  if (format != kFormat || (family != 4 && family != 6) || port == 0) {
    return base::Status(base::StatusCode::kMalformed,
                        "this unique id was made by another version of Spillway: install the same "
                        "version everywhere");
  }
  content.address = address_from(family == 6, address, port);
  return content;
}

launch::RendezvousPoint point_of(const UniqueIdContent& content) {
  const std::string text = content.address.to_string();
  std::string host = text.substr(0, text.rfind(':'));
  if (content.address.is_ipv6()) {
    host = host.substr(1, host.size() - 2);
  }
  return {.places = {{host, content.address.port()}}, .local_name = {}, .nonce = content.nonce};
}

net::UniqueFd take_listener(const UniqueIdContent& content) {
  return UnusedListeners::of_process().take(content.nonce);
}

base::Result<UniqueId> create_reachable_unique_id() {
  const base::Result<launch::InterfaceChoice> choice =
      launch::interface_choice(base::Environment::of_process(), /*one_machine=*/false);
  if (!choice.ok()) {
    return choice.status();
  }
  const auto interfaces = net::interface_addresses();
  if (!interfaces.ok()) {
    return interfaces.status();
  }
  const auto interface = launch::choose_interface(*interfaces, *choice);
  if (!interface.ok()) {
    return interface.status();
  }
  return create_unique_id(interface->address);
}

// ------------------------------------------------------------------ the exchange

namespace {

base::Status check(const Participant& participant, const Blob& own) {
  if (participant.world == 0 || participant.world > launch::kMaxRanks ||
      participant.rank >= participant.world) {
    return base::invalid_argument(
        fmt::format("there is no rank {} of {}: there may be 1 to {} ranks, numbered from 0",
                    participant.rank, participant.world, launch::kMaxRanks));
  }
  if (own.size() > kMaxBlobBytes) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("a rank may bring {} bytes to a rendezvous, not {}", kMaxBlobBytes,
                        own.size())};
  }
  return {};
}

// The key that all ranks share before they meet: the secret, else the id's nonce, else nothing.
base::Result<Credential> credential_of(base::ByteView secret, const launch::Nonce* id) {
  if (!secret.empty()) {
    return Credential::of_secret(secret);
  }
  return id != nullptr ? Credential::of_id(*id) : Credential();
}

// A checked attendance, with its random, and the credential.
struct CheckedParticipant {
  Participant participant{};
  Credential credential{};
};

base::Result<CheckedParticipant> check_and_draw(Participant participant,
                                                base::Result<Credential> credential,
                                                const Blob& own) {
  if (base::Status fit = check(participant, own); !fit.ok()) {
    return fit;
  }
  const base::Result<Random> random = draw_random();
  if (!random.ok() || !credential.ok()) {
    return random.ok() ? credential.status() : random.status();
  }
  participant.random = *random;
  return CheckedParticipant{participant, std::move(credential).value()};
}

}  // namespace

base::Result<RendezvousResult> exchange(const launch::Launch& launch, base::ByteView secret,
                                        const Blob& own, base::Duration patience) {
  // A launch's nonce is made of public words, so it proves nothing.
  const base::Result<CheckedParticipant> checked =
      check_and_draw({launch.rank, launch.world, launch.where.nonce, patience, {}},
                     credential_of(secret, nullptr), own);
  if (!checked.ok()) {
    return checked.status();
  }
  if (launch.world == 1) {
    return meet_alone(own);
  }
  const auto& [participant, credential] = *checked;
  if (launch.rank != 0) {
    return join_rendezvous(launch.where, participant, credential, own, "rank 0");
  }
  base::Result<Listening> listening = listen_at(launch.where);
  return listening.ok()
             ? host_rendezvous(std::move(listening).value(), participant, credential, own)
             : listening.status();
}

base::Result<RendezvousResult> exchange(const UniqueId& id, RankOfWorld member,
                                        base::ByteView secret, const Blob& own,
                                        base::Duration patience) {
  const base::Result<UniqueIdContent> content = parse_unique_id(id);
  if (!content.ok()) {
    return content.status();
  }
  const base::Result<CheckedParticipant> checked =
      check_and_draw({member.rank, member.world, content->nonce, patience, {}},
                     credential_of(secret, &content->nonce), own);
  if (!checked.ok()) {
    return checked.status();
  }
  if (member.world == 1) {
    discard_unique_id(id);  // no other rank will join
    return meet_alone(own);
  }
  const auto& [participant, credential] = *checked;
  net::UniqueFd listener = take_listener(*content);
  if (listener.valid()) {
    return host_rendezvous({std::move(listener), content->address.to_string()}, participant,
                           credential, own);
  }
  return join_rendezvous(point_of(*content), participant, credential, own,
                         "the maker of the unique id");
}

base::Result<RendezvousResult> meet_alone(const Blob& own) {
  const base::Result<wire::RunKey> key = draw_key();
  if (!key.ok()) {
    return key.status();
  }
  return RendezvousResult{.blobs = {own}, .key = *key, .strangers = {}};
}

namespace {

constexpr std::array<std::string_view, kStrangerKinds> kWords = {
    "spoke something else",
    "had a secret where the host has none, or none where it has one",
    "did not prove that they belong to this job",
    "did not say in time who they are",
    "came when all places of their address were taken",
};

}  // namespace

std::uint64_t StrangerCounts::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::string StrangerCounts::to_string() const {
  std::vector<std::string> parts;
  for (std::size_t kind = 0; kind < kStrangerKinds; ++kind) {
    if (counts[kind] != 0) {
      parts.push_back(fmt::format("{} {}", counts[kind], kWords[kind]));
    }
  }
  return parts.empty() ? "" : fmt::format("turned away: {}", fmt::join(parts, "; "));
}

base::Result<RendezvousResult> result_of(const Credential& credential, const Gather& gather) {
  Blob randoms;
  for (const Random& random : gather.randoms) {
    randoms.insert(randoms.end(), random.begin(), random.end());
  }
  const base::Result<Digest> salt = sha256(randoms);
  if (!salt.ok()) {
    return salt.status();
  }
  wire::Key<64> secret;
  std::copy(credential.key().bytes.begin(), credential.key().bytes.end(), secret.bytes.begin());
  std::copy(gather.drawn.bytes.begin(), gather.drawn.bytes.end(), secret.bytes.begin() + 32);
  RendezvousResult result{.blobs = gather.blobs, .key = {}, .strangers = {}};
  const base::Status status =
      wire::derive(secret.bytes, *salt, wire::KeyLabel::kRun, result.key.bytes);
  return status.ok() ? base::Result<RendezvousResult>(std::move(result)) : status;
}

}  // namespace spillway::comm
