// SPDX-License-Identifier: Apache-2.0
//
// The launcher's settings of this process: its rank, the world size, and where the ranks meet.
//
// The first family whose rank variable is set supplies everything about ranks, and families are
// never mixed. Under srun plus torchrun both set theirs, and one's rank does not fit the other's
// size.
//
//   spillway   SPILLWAY_RANK SPILLWAY_WORLD_SIZE [SPILLWAY_LOCAL_RANK SPILLWAY_LOCAL_WORLD_SIZE]
//   torchrun   RANK WORLD_SIZE [LOCAL_RANK LOCAL_WORLD_SIZE] MASTER_ADDR MASTER_PORT
//              (also Kubeflow, Ray, and the lab)
//   openmpi    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE ...
//   pmix       PMI_RANK PMI_SIZE ...
//   slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) ...
//
// With any family, SPILLWAY_COMM_ID=host:port overrides the family's meeting place. A lab sets
// SPILLWAY_PEERS and SPILLWAY_LISTEN, the addresses of the ranks' data. SPILLWAY_SERVERS adds
// parameter servers (below).
//
// A pure function of the environment: it looks up no names and opens no sockets. Errors name the
// missing or wrong variable and what to set.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"

namespace spillway::launch {

// ------------------------------------------------------------------ where ranks meet

// Where the ranks of a job meet, and how they recognize the right meeting.
//
// There are several places if a port was derived and may be taken, or if a host has several
// addresses. Rank 0 listens at the first port it can bind; the other ranks try all in turn.
//
// A nonce is sixteen bytes that tell one job's rendezvous from another's. A derived nonce is made
// of words that every rank of the job knows. It keeps unrelated jobs apart, but it is no secret and
// proves nothing. A random nonce is that of a unique id: only ranks that were given the id know it,
// and it authenticates them (rendezvous/handshake.h).
//
// Plain values; the connecting rank looks names up. Any thread; only random_nonce() asks the
// kernel.

using Nonce = std::array<std::uint8_t, 16>;

base::Result<Nonce> random_nonce();

// The same words in the same order give the same nonce on every machine; ("ab", "c") is not
// ("a", "bc").
Nonce nonce_of(std::span<const std::string> words);

// "3f09...", for names and messages.
std::string to_hex(const Nonce& nonce);

struct Place {
  std::string host{};  // a name, or an IPv4 or IPv6 address without brackets
  std::uint16_t port = 0;

  std::string to_string() const;
  friend bool operator==(const Place&, const Place&) = default;
};

// Parses "host:port", "10.0.0.1:29517" or "[fd00::1]:29517", the forms of SPILLWAY_COMM_ID.
base::Result<Place> parse_place(std::string_view text);

struct RendezvousPoint {
  std::vector<Place> places{};
  // Name of an abstract Unix socket of this machine. If it is set, there are no places.
  std::string local_name{};
  Nonce nonce{};

  // True if no rank can meet there: fine for a world of one.
  bool empty() const { return places.empty() && local_name.empty(); }
  // For messages.
  std::string to_string() const;
};

// Ports from 20000 to 32767, which Linux gives to no outgoing connection. The same words give the
// same ports everywhere.
inline constexpr std::size_t kDerivedPorts = 3;
std::vector<Place> derived_places(std::string_view host, std::span<const std::string> words);

// ------------------------------------------------------------------ families of launchers

// A launcher family: the variables by which one launcher tells a process its rank, and the meeting
// place derived from them (launchers.cc; slurm.cc).
//
// Pure functions of the environment; any thread.

// A rank's position in its job.
struct RankPosition {
  std::uint16_t rank = 0;
  std::uint16_t world = 1;
  std::uint16_t local_rank = 0;   // among the ranks on this machine
  std::uint16_t local_world = 1;  // 1 if the launcher does not say
  bool is_local_known = false;    // true if the launcher says
};

struct PositionVariables {
  std::string_view rank{};
  std::string_view world{};
  std::string_view local_rank{};
  std::string_view local_world{};
};

// Checks that the variables are consistent. The two local ones may be missing.
base::Result<RankPosition> read_position(const base::Environment& environment,
                                         const PositionVariables& variables);

struct LaunchFamily {
  std::string_view launcher{};
  std::string_view rank_variable{};  // selects the family if it is set
  std::string_view world_variable{};
  base::Result<RankPosition> (*position)(const base::Environment& environment) = nullptr;
  // Words that all ranks of this run know, and ranks of another run (or of the same job before its
  // restart) do not. May be empty.
  std::vector<std::string> (*identity)(const base::Environment& environment) = nullptr;
  // The meeting place, without a nonce. Used if SPILLWAY_COMM_ID is unset and there is more than
  // one rank.
  base::Result<RendezvousPoint> (*meeting)(const base::Environment& environment,
                                           const RankPosition& position) = nullptr;
};

// In order of precedence.
std::span<const LaunchFamily> launch_families();

extern const LaunchFamily kSpillwayFamily;
extern const LaunchFamily kTorchrunFamily;
extern const LaunchFamily kOpenMpiFamily;
extern const LaunchFamily kPmiFamily;
extern const LaunchFamily kSlurmFamily;

// "NAME=value" for each variable that is set.
std::vector<std::string> words_of(const base::Environment& environment,
                                  std::initializer_list<std::string_view> names);

// "...: set SPILLWAY_COMM_ID ...": for launchers that name no meeting place.
base::Status no_meeting_place(std::string_view why);

// Slurm's settings of a job step, for srun itself and for launchers that it starts. Rank 0 is on
// the first node of the step's list, unless tasks were distributed arbitrarily (srun -m arbitrary).
//
// Slurm compresses its lists. Node lists look like "gnode[10,20-25,037],login1": a range's first
// number sets the number of digits. A name may have several brackets ("rack[1-2]n[01-04]"), the
// last varying fastest. Tasks per node look like "2(x3),1".
//
// Pure functions; any thread. Limit: a list of more than kMaxNodes is an error, so that a few wrong
// characters cannot ask for gigabytes.

inline constexpr std::size_t kMaxNodes = 65536;

// The node names in list order; at least one.
base::Result<std::vector<std::string>> expand_node_list(std::string_view list);

// "2(x3),1" is 2, 2, 2, 1.
base::Result<std::vector<std::uint32_t>> expand_task_counts(std::string_view list);

// The job, the step and the requeue count.
std::vector<std::string> slurm_identity(const base::Environment& environment);

base::Result<RendezvousPoint> slurm_meeting(const base::Environment& environment);

// ------------------------------------------------------------------ what the launcher told this
// process

// Limit of one job.
inline constexpr auto kMaxRanks =
    static_cast<std::uint32_t>(base::variable("SPILLWAY_WORLD_SIZE").most);

struct Launch {
  std::uint16_t rank = 0;
  std::uint16_t world = 1;        // all ranks
  std::uint16_t servers = 0;      // the last ranks, which are parameter servers
  std::uint16_t local_rank = 0;   // among the ranks on this machine
  std::uint16_t local_world = 1;  // 1 if the launcher does not say
  std::string launcher = "explicit";
  RendezvousPoint where{};                     // may be empty for a world of one
  std::vector<net::SocketAddress> peers{};     // of all ranks, by rank; or empty
  std::optional<net::SocketAddress> listen{};  // address at which this rank receives data

  bool on_one_machine() const { return local_world == world; }
};

// `servers`, if set, overrides SPILLWAY_SERVERS.
base::Result<Launch> launch_from_environment(const base::Environment& environment,
                                             std::optional<std::uint16_t> servers = std::nullopt);

// True if a launcher has set a rank.
bool is_launched(const base::Environment& environment);

// A launch without a meeting place, for ranks that meet by other means, such as torch's store.
struct LaunchOutline {
  std::string launcher{};
  RankPosition position{};
  // Rank 0's host and a port for the application's own use, the same at all ranks and not used by
  // Spillway. Empty and 0 if unknown.
  Place store{};
};
// nullopt if no launcher has set a rank.
base::Result<std::optional<LaunchOutline>> outline_of_launch(const base::Environment& environment);

// The local rank for a process whose rank does not come from its launcher; 0 if nothing names it.
base::Result<std::uint16_t> local_rank_from(const base::Environment& environment);

// Reads SPILLWAY_PEERS and SPILLWAY_LISTEN into a launch that lacks only its meeting place.
base::Status read_data_addresses(const base::Environment& environment, Launch& launch);

// Jobs with parameter servers. Launchers start and count only the workers. SPILLWAY_SERVERS=N tells
// the workers that N servers (`spillway server`) belong to the job; their ranks follow the
// workers'.
//
// A server is started by hand and lacks the launcher's variables, so all meet at an address that
// both sides can be given. That is SPILLWAY_COMM_ID, an address of worker 0's host. In a lab it is
// the first of SPILLWAY_PEERS, which then names the servers too.
//
// Pure functions of the environment; any thread.

// Which of a job's parameter servers a process is.
struct ServerPosition {
  std::uint16_t index = 0;
  std::uint16_t servers = 1;
  std::uint16_t workers = 1;
  std::string place{};  // host:port where all meet; empty: from the environment
};

// SPILLWAY_SERVERS; 0 if unset.
base::Result<std::uint16_t> servers_of(const base::Environment& environment);

// Adds the servers to a worker's launch.
base::Status join_servers(const base::Environment& environment, std::uint16_t servers,
                          Launch& worker);

base::Result<Launch> launch_of_server(const base::Environment& environment,
                                      const ServerPosition& position);

// How long a rank waits for its peers to join and to answer, and what the error says about a silent
// peer. The caller's values override the environment, which overrides the defaults.
//
//   SPILLWAY_PEER_TIMEOUT        seconds until a peer that owes an answer counts as dead
//   SPILLWAY_RENDEZVOUS_TIMEOUT  seconds to wait for all ranks to join
//
// Both may have fractions. Ranks need not agree on them.
//
// A silent rank may be dead, may have got no processor, or may never have been reachable. The user
// can tell these apart only with the address and the right variables, so the advice names them.
//
// Pure; any thread.

struct Timeouts {
  base::Duration peer{};
  base::Duration rendezvous{};
};

struct WantedTimeouts {
  std::optional<base::Duration> peer;
  std::optional<base::Duration> rendezvous;
};

// An invalid variable is an error even if the caller overrides it.
base::Result<Timeouts> timeouts_from(const base::Environment& environment,
                                     const WantedTimeouts& wanted);

struct SilentPeer {
  net::SocketAddress address{};
  // True if an operation has succeeded, so packets do travel between ranks.
  bool has_worked = false;
  std::string protocol = "UDP";  // under its packets
};

// `failure` with the advice appended.
base::Status with_advice(const base::Status& failure, const SilentPeer& peer);

// ------------------------------------------------------------------ the address of this host

// Chooses the address of this host that the other ranks are told. Loopback (127.0.0.1) cannot be
// reached from other hosts. It is chosen only if all ranks run on one machine, there is nothing
// else, or the user names it.
//
//   SPILLWAY_SOCKET_IFNAME   as NCCL_SOCKET_IFNAME: "eth,ib": names that begin so;
//                            "=eth0": exactly this; "^docker,br": none that begins so; "^=docker0"
//   SPILLWAY_SOCKET_FAMILY   AF_INET or AF_INET6; unset: IPv4 if an interface has both
//
// Choosing is a pure function of a list; net/address.h asks the kernel. Link-local IPv6
// addresses are skipped: they are useless without the interface name of the host that uses them.

enum class AddressFamily { kAny, kIpv4, kIpv6 };

struct InterfaceChoice {
  std::string names{};  // as in SPILLWAY_SOCKET_IFNAME; empty: the default
  AddressFamily family = AddressFamily::kAny;
  bool one_machine = false;  // all ranks run here; `names` still wins
};

base::Result<InterfaceChoice> interface_choice(const base::Environment& environment,
                                               bool one_machine);

// The first match, in the order of `interfaces`.
base::Result<net::InterfaceAddress> choose_interface(
    std::span<const net::InterfaceAddress> interfaces, const InterfaceChoice& choice);

}  // namespace spillway::launch
