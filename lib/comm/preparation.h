// SPDX-License-Identifier: Apache-2.0
//
// Everything that a communicator needs to know before its first packet: its identity, its packet
// format and its driver's settings; and how these settings change the operations that callers
// submit. Explicit options win over SPILLWAY_* variables, and those over what the machine reports.
//
//   SPILLWAY_LINK_RATE           bits per second of this host's link
//   SPILLWAY_MTU                 of the interface, in bytes
//   SPILLWAY_TRIM_BYTES          size of a trimmed frame
//   SPILLWAY_CARRIER             UDP, TCP, or UDP with fallback to TCP (net/sockets.h)
//   SPILLWAY_ALGORITHM           of operations that name none
//   SPILLWAY_RACK_RANKS          ranks under one switch
//   SPILLWAY_THREADS             compute threads, for sums and coding
//   SPILLWAY_SERVERS             number of parameter servers
//   SPILLWAY_SECRET              the job's secret (secret.h)
//   SPILLWAY_SECRET_FILE         path of the secret
//   SPILLWAY_ENCRYPT             encrypts payloads; needs a secret
//   SPILLWAY_PEER_TIMEOUT        launch/launch.h
//   SPILLWAY_RENDEZVOUS_TIMEOUT  launch/launch.h
//
// prepare() reads the environment, the secret's file and kernel files; it leaves nothing open.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "collective/hosts.h"
#include "collective/operation.h"
#include "comm/communicator.h"
#include "comm/rendezvous/message.h"
#include "comm/rendezvous/rendezvous.h"
#include "launch/launch.h"
#include "launch/secret.h"
#include "net/address.h"
#include "net/sockets.h"
#include "net/transport_driver.h"
#include "observe/operation_observer.h"
#include "packetize/packet_plan.h"
#include "wire/key.h"

namespace spillway::comm {

struct Preparation {
  collective::Group group;
  launch::Launch launch;  // its rendezvous is unused if there is an id
  launch::Secret secret;  // empty if the job has none
  bool encrypt = false;   // encrypts payloads; requires a secret
  observe::Identity identity;
  observe::ObserverConfig observer;
  net::DriverConfig driver;
  base::Duration rendezvous_patience{};
  bool is_loopback = false;
  bool local_copy = true;  // ranks of one machine share memory
  // Defaults for operations that name none (SPILLWAY_ALGORITHM, SPILLWAY_RACK_RANKS).
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;
  std::uint16_t rack_ranks = 0;
  collective::ShareRule shares = collective::ShareRule::kAutomatic;
  unsigned mtu = 1500;
  unsigned trim_bytes = 0;
  std::optional<unsigned> threads;
};

base::Result<Preparation> prepare(const CommunicatorConfig& config,
                                  const base::Environment& environment);

// Completes the preparation of a slot (Communicator::Slot) once its rank is known.
base::Status take_rank(const RankOfWorld& member, const base::Environment& environment,
                       Preparation& preparation);

// Selects the protocol under the packets (docs/adr/0015-tcp-carrier.md); all ranks must select the
// same. Over TCP, packets have the largest size of the format whatever the MTU, and no switch trims
// them; pacing, multiple paths and early reports are off. Call this last: for TCP it overrides the
// MTU, trim size, send rate and exchange settings.
base::Status take_carrier(const base::Environment& environment, Preparation& preparation);

// ------------------------------------------------------------------ operations
//
// Rules for operations whose sums switches can form, applied before the engine sees them. Pure
// functions: the same input gives the same result at every rank.

// The operation that runs if the environment says `algorithm`. kSwitch applies to tolerant
// operations whose values switches can add. Codecs entropy and sketch obey kRing alone, exact
// operations all but kSwitch. In other cases the variable is ignored.
collective::Operation with_algorithm(const collective::Operation& asked,
                                     collective::Algorithm algorithm,
                                     const collective::Group& group);

// ------------------------------------------------------------------ meeting the other ranks

// The first step of a communicator: all ranks exchange cards (RankCard), and each rank derives from
// them how it reaches its peers and which packets all of them can use.
//
// One thread. meet() waits for the other ranks, at most as long as the preparation says. Nothing
// else here waits.

// ------------------------------------------------------------------ cards

inline constexpr std::size_t kMemoryNameDigits = 32;
inline constexpr std::size_t kMaxMemoryDomain = 256;

// How ranks of the same machine get this rank's memory segment (local_memory.h). All fields are
// empty if it shares none.
struct MemoryCard {
  std::string domain{};  // equal for ranks that may share
  std::string name{};    // of the MemoryListener, in hexadecimal digits
  std::string token{};   // that neighbours must present, in hexadecimal digits
};

// A rank's card for the others when they meet: its data address and its network. A plain value,
// written as one line of text; any bytes parse to a card or to an error.
struct RankCard {
  net::SocketAddress data{};  // receives this rank's datagrams
  unsigned mtu = 1500;
  unsigned trim_bytes = 0;
  std::string machine{};  // equal for ranks of one machine
  net::Carrier carrier = net::Carrier::kAuto;
  std::uint16_t rack_ranks = 0;  // ranks under one switch; 0 if unknown
  MemoryCard memory{};
};

// True if the two ranks may share memory.
inline bool may_share(const RankCard& one, const RankCard& other) {
  return !one.memory.domain.empty() && one.memory.domain == other.memory.domain;
}

Blob to_blob(const RankCard& card);
base::Result<RankCard> parse_rank_card(const Blob& blob);

// The packet limits common to all ranks: the smallest MTU, and the trim size on which all must
// agree.
base::Result<packetize::PacketLimits> common_packet_limits(std::span<const RankCard> cards);

// Fails unless all workers name the same racks: plans follow from them.
base::Status check_plans(std::span<const RankCard> workers);

// Fails unless all ranks selected the same carrier.
base::Status check_carriers(std::span<const RankCard> cards);

// "UDP", "TCP", "UDP or TCP"
std::string_view protocols_of(net::Carrier carrier);

// A name unique to this machine until it reboots.
std::string machine_name();

// ------------------------------------------------------------------ meeting

// A rank's knowledge after it has met the others.
struct GroupInfo {
  std::vector<RankCard> cards{};  // of all ranks, including this one
  wire::RunKey run_key{};         // known only to these ranks, new for each run
};

// `local`: the address at which this rank receives data.
RankCard own_card(const Preparation& preparation, const net::SocketAddress& local,
                  const MemoryCard& memory);

// Meets at the id's address if there is an id, else at the launcher's. Rank 0 warns, once per
// process, if a job without a secret leaves its machine.
base::Result<GroupInfo> meet(const Preparation& preparation, const std::optional<UniqueId>& id,
                             const Blob& own);
// The same from cards obtained elsewhere; the first `workers` are the application's ranks.
base::Result<GroupInfo> group_info_from(std::span<const Blob> cards, const wire::RunKey& key,
                                        std::uint16_t workers);

// Derived from a run's key: the numbers that tell its packets from those of other runs, and the
// session that protects them.
struct RunIdentity {
  packetize::Job job{};
  transport::Epoch epoch{};
};
base::Result<RunIdentity> identity_of(const wire::RunKey& key, bool encrypt);

// The address of each rank: the launch's if it names one, else its card's.
std::vector<net::SocketAddress> addresses_of(const Preparation& preparation,
                                             std::span<const RankCard> cards);

// Adds all other ranks to the driver. Fails, with a remedy, if a rank is unreachable or the path to
// it takes smaller packets than the agreed size. Datagrams may come from the launch's address of a
// peer or from its card's.
base::Status add_peers(std::span<const net::SocketAddress> addresses,
                       std::span<const RankCard> cards, std::uint16_t rank,
                       const packetize::PacketLimits& limits, net::TransportDriver& driver);

// Whether ranks may open streams to each other beside datagrams: the same at all ranks.
bool may_stream(const Preparation& preparation, std::span<const RankCard> cards);

// The hosts of all ranks, as collectives see them: ranks of one host may share memory. The same at
// all ranks, because all have the same cards.
collective::Hosts hosts_of(std::span<const RankCard> cards);

// Number of ranks on this rank's machine, including itself.
unsigned ranks_here(std::span<const RankCard> cards, std::uint16_t rank);

}  // namespace spillway::comm
