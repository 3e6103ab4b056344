// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "base/bytes.h"
#include "base/environment.h"
#include "base/random.h"
#include "net/system_call.h"

namespace spillway::launch {

namespace {

base::Status nobody_speaks(const base::Environment& environment) {
  for (const LaunchFamily& family : launch_families()) {
    if (environment.has(family.world_variable)) {
      return base::invalid_argument(fmt::format("{} is set but {} is not: set both",
                                                family.world_variable, family.rank_variable));
    }
  }
  if (environment.has("PMIX_RANK")) {
    return base::invalid_argument(
        "PMIX_RANK is set, but PMIx leaves no number of ranks in the environment: set "
        "SPILLWAY_RANK, SPILLWAY_WORLD_SIZE and SPILLWAY_COMM_ID");
  }
  return base::invalid_argument(
      "no launcher has set a rank: start the ranks with torchrun, mpirun, srun or spillway lab "
      "run, or set SPILLWAY_RANK, SPILLWAY_WORLD_SIZE and SPILLWAY_COMM_ID=host:port");
}

const LaunchFamily* speaking(const base::Environment& environment) {
  for (const LaunchFamily& family : launch_families()) {
    if (environment.has(family.rank_variable)) {
      return &family;
    }
  }
  return nullptr;
}

base::Result<RendezvousPoint> place_of(const base::Environment& environment,
                                       const LaunchFamily& family, const RankPosition& position) {
  if (const std::optional<std::string> id = environment.get("SPILLWAY_COMM_ID")) {
    const base::Result<Place> place = parse_place(*id);
    if (!place.ok()) {
      return place.status();
    }
    return RendezvousPoint{.places = {*place}, .local_name = {}, .nonce = {}};
  }
  return position.world == 1 ? RendezvousPoint{} : family.meeting(environment, position);
}

// The launcher is one of the words: ranks under different launchers belong to different jobs.
Nonce nonce_for(const base::Environment& environment, const LaunchFamily& family) {
  std::vector<std::string> words = family.identity(environment);
  words.emplace_back(family.launcher);
  words.push_back(environment.get_or("SPILLWAY_COMM_ID", ""));
  return nonce_of(words);
}

// The address for the application's own store: the host of Spillway's meeting place, another port.
Place store_of(const base::Environment& environment, const LaunchFamily& family,
               const RankPosition& position) {
  const base::Result<RendezvousPoint> point = place_of(environment, family, position);
  if (environment.has("SPILLWAY_COMM_ID") && point.ok()) {
    const Place& meeting = point->places.front();
    return {meeting.host, static_cast<std::uint16_t>(meeting.port + 1)};
  }
  Place store;
  if (position.local_world == position.world) {
    store.host = "127.0.0.1";
  } else if (point.ok() && !point->places.empty()) {
    store.host = point->places.front().host;
  }
  if (std::vector<std::string> words = family.identity(environment); !words.empty()) {
    words.emplace_back("store");
    store.port = derived_places(store.host, words).front().port;
  }
  return store;
}

}  // namespace

bool is_launched(const base::Environment& environment) {
  return speaking(environment) != nullptr;
}

base::Result<std::optional<LaunchOutline>> outline_of_launch(const base::Environment& environment) {
  const LaunchFamily* family = speaking(environment);
  if (family == nullptr) {
    return std::optional<LaunchOutline>();
  }
  const base::Result<RankPosition> position = family->position(environment);
  if (!position.ok()) {
    return position.status();
  }
  return std::optional(LaunchOutline{std::string(family->launcher), *position,
                                     store_of(environment, *family, *position)});
}

base::Result<std::uint16_t> local_rank_from(const base::Environment& environment) {
  const auto said = environment.optional_number("SPILLWAY_LOCAL_RANK");
  if (!said.ok()) {
    return said.status();
  }
  if (*said) {
    return static_cast<std::uint16_t>(**said);
  }
  const base::Result<std::optional<LaunchOutline>> outline = outline_of_launch(environment);
  return outline.ok() && *outline ? (*outline)->position.local_rank : std::uint16_t{0};
}

base::Status read_data_addresses(const base::Environment& environment, Launch& launch) {
  if (const std::optional<std::string> text = environment.get("SPILLWAY_PEERS")) {
    const auto peers = net::parse_addresses(*text);
    if (!peers.ok()) {
      return base::refusal(base::variable("SPILLWAY_PEERS"), *text);
    }
    if (peers->size() != launch.world) {
      return base::invalid_argument(
          fmt::format("SPILLWAY_PEERS names {} addresses for {} ranks ({}): set as many, or unset "
                      "it and let the ranks find each other",
                      peers->size(), launch.world, launch.launcher));
    }
    launch.peers = *peers;
  }
  if (const std::optional<std::string> text = environment.get("SPILLWAY_LISTEN")) {
    const auto listen = net::SocketAddress::parse(*text);
    if (!listen.ok()) {
      return base::refusal(base::variable("SPILLWAY_LISTEN"), *text);
    }
    launch.listen = *listen;
  }
  return {};
}

base::Result<Launch> launch_from_environment(const base::Environment& environment,
                                             std::optional<std::uint16_t> told_servers) {
  const LaunchFamily* family = speaking(environment);
  if (family == nullptr) {
    return nobody_speaks(environment);
  }
  const base::Result<RankPosition> position = family->position(environment);
  if (!position.ok()) {
    return position.status();
  }
  Launch launch{.rank = position->rank,
                .world = position->world,
                .local_rank = position->local_rank,
                .local_world = position->local_world,
                .launcher = std::string(family->launcher)};
  const base::Result<std::uint16_t> servers =
      told_servers ? base::Result<std::uint16_t>(*told_servers) : servers_of(environment);
  if (!servers.ok()) {
    return servers.status();
  }
  if (*servers > 0) {
    if (base::Status status = join_servers(environment, *servers, launch); !status.ok()) {
      return status;
    }
  }
  const base::Status data = read_data_addresses(environment, launch);
  if (!data.ok()) {
    return data;
  }
  if (launch.servers > 0) {
    return launch;
  }
  base::Result<RendezvousPoint> where = place_of(environment, *family, *position);
  if (!where.ok()) {
    return where.status();
  }
  launch.where = std::move(where).value();
  launch.where.nonce = nonce_for(environment, *family);
  return launch;
}

namespace {

std::string meeting_place(const base::Environment& environment) {
  const std::string peers = environment.get_or("SPILLWAY_PEERS", "");
  return environment.get_or("SPILLWAY_COMM_ID", peers.substr(0, peers.find(',')));
}

bool is_on_this_machine(const std::string& place) {
  return place.starts_with("127.") || place.starts_with("localhost:") || place.starts_with("[::1]");
}

base::Status check_world(unsigned workers, unsigned servers) {
  if (workers == 0 || servers == 0 || workers + servers > kMaxRanks) {
    return base::invalid_argument(
        fmt::format("{} workers and {} parameter servers: at least one of each, and at most {} "
                    "together",
                    workers, servers, kMaxRanks));
  }
  return {};
}

// Sets the place where workers and servers meet and the nonce by which they recognize each other.
// `told` overrides the environment.
base::Status take_meeting(const base::Environment& environment, const std::string& told,
                          Launch& launch) {
  const std::string text = told.empty() ? meeting_place(environment) : told;
  if (text.empty()) {
    return no_meeting_place("workers and parameter servers meet where SPILLWAY_COMM_ID says");
  }
  const base::Result<Place> place = parse_place(text);
  if (!place.ok()) {
    return place.status();
  }
  const std::array<std::string, 3> words = {"parameter servers", text,
                                            environment.get_or("SPILLWAY_LAB_ID", "")};
  launch.where = {.places = {*place}, .local_name = {}, .nonce = nonce_of(words)};
  launch.local_world = is_on_this_machine(text) ? launch.world : std::uint16_t{1};
  return {};
}

}  // namespace

base::Result<std::uint16_t> servers_of(const base::Environment& environment) {
  const base::Result<std::int64_t> servers = environment.number("SPILLWAY_SERVERS");
  if (!servers.ok()) {
    return servers.status();
  }
  return static_cast<std::uint16_t>(*servers);
}

base::Status join_servers(const base::Environment& environment, std::uint16_t servers,
                          Launch& worker) {
  if (base::Status status = check_world(worker.world, servers); !status.ok()) {
    return status;
  }
  worker.servers = servers;
  worker.world = static_cast<std::uint16_t>(worker.world + servers);
  return take_meeting(environment, /*told=*/"", worker);
}

base::Result<Launch> launch_of_server(const base::Environment& environment,
                                      const ServerPosition& position) {
  if (base::Status status = check_world(position.workers, position.servers); !status.ok()) {
    return status;
  }
  if (position.index >= position.servers) {
    return base::invalid_argument(
        fmt::format("parameter server {} of {}: they are numbered from 0 to one below their number",
                    position.index, position.servers));
  }
  Launch launch;
  launch.rank = static_cast<std::uint16_t>(position.workers + position.index);
  launch.world = static_cast<std::uint16_t>(position.workers + position.servers);
  launch.servers = position.servers;
  launch.launcher = "spillway server";
  if (base::Status status = read_data_addresses(environment, launch); !status.ok()) {
    return status;
  }
  if (base::Status status = take_meeting(environment, position.place, launch); !status.ok()) {
    return status;
  }
  return launch;
}

base::Result<Timeouts> timeouts_from(const base::Environment& environment,
                                     const WantedTimeouts& wanted) {
  const auto peer = environment.seconds("SPILLWAY_PEER_TIMEOUT");
  if (!peer.ok()) {
    return peer.status();
  }
  const auto rendezvous = environment.seconds("SPILLWAY_RENDEZVOUS_TIMEOUT");
  if (!rendezvous.ok()) {
    return rendezvous.status();
  }
  return Timeouts{.peer = wanted.peer.value_or(*peer),
                  .rendezvous = wanted.rendezvous.value_or(*rendezvous)};
}

base::Status with_advice(const base::Status& failure, const SilentPeer& peer) {
  constexpr std::string_view kStarved =
      "if it lives but waits for a processor, set SPILLWAY_PEER_TIMEOUT to more seconds";
  const std::string unreached = fmt::format(
      "nothing has worked yet, so see that {} goes from here to {} and back "
      "(SPILLWAY_SOCKET_IFNAME chooses interfaces); ",
      peer.protocol, peer.address.to_string());
  return {failure.code(),
          fmt::format("{}; {}{}", failure.message(), peer.has_worked ? "" : unreached, kStarved)};
}

// ------------------------------------------------------------------ where ranks meet

namespace {

// Any two distinct numbers: they make the halves of a nonce differ.
constexpr std::array<std::uint64_t, 2> kHalves = {0x53706c6c77617931, 0x53706c6c77617932};

// Mixes a word into `key`, twelve bytes and their position at a time. The length comes last, so a
// word and its prefix mix differently.
std::uint64_t mix(std::uint64_t key, std::string_view word) {
  for (std::size_t at = 0; at < word.size(); at += 12) {
    std::array<char, 12> part{};
    std::copy_n(word.data() + at, std::min<std::size_t>(12, word.size() - at), part.data());
    key = base::derive_key(
        key, {base::load_le<std::uint32_t>(part.data()), base::load_le<std::uint32_t>(&part[4]),
              base::load_le<std::uint32_t>(&part[8]), static_cast<std::uint32_t>(at)});
  }
  return base::derive_key(key, {static_cast<std::uint32_t>(word.size()), 0, 0, ~0U});
}

}  // namespace

base::Result<Nonce> random_nonce() {
  Nonce nonce{};
  if (base::Status status = net::fill_random(nonce); !status.ok()) {
    return status;
  }
  return nonce;
}

Nonce nonce_of(std::span<const std::string> words) {
  Nonce nonce{};
  for (std::size_t half = 0; half < kHalves.size(); ++half) {
    std::uint64_t key = kHalves[half];
    for (const std::string& word : words) {
      key = mix(key, word);
    }
    base::store_le(nonce.data() + 8 * half, key);
  }
  return nonce;
}

std::string to_hex(const Nonce& nonce) {
  return fmt::format("{:02x}", fmt::join(nonce, ""));
}

namespace {

constexpr std::uint16_t kFirstDerivedPort = 20000;
constexpr std::uint16_t kDerivedPortRange = 12768;

}  // namespace

std::string Place::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

base::Result<Place> parse_place(std::string_view text) {
  const base::Status wrong = base::refusal(base::variable("SPILLWAY_COMM_ID"), text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return wrong;
  }
  Place place;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, place.port);
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  }
  if (error != std::errc() || stop != end || place.port == 0 ||
      (!bracketed && host.find(':') != std::string_view::npos)) {
    return wrong;
  }
  place.host = host;
  return place;
}

std::string RendezvousPoint::to_string() const {
  if (!local_name.empty()) {
    return fmt::format("the local socket @{}", local_name);
  }
  std::vector<std::string> texts;
  for (const Place& place : places) {
    texts.push_back(place.to_string());
  }
  return fmt::format("{}", fmt::join(texts, " or "));
}

std::vector<Place> derived_places(std::string_view host, std::span<const std::string> words) {
  const Nonce drawn = nonce_of(words);
  std::vector<Place> places;
  for (std::size_t i = 0; i < kDerivedPorts; ++i) {
    const std::uint32_t offset =
        base::load_le<std::uint32_t>(drawn.data() + 4 * i) % kDerivedPortRange;
    places.push_back({std::string(host), static_cast<std::uint16_t>(kFirstDerivedPort + offset)});
  }
  return places;
}

}  // namespace spillway::launch
