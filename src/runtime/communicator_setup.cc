// SPDX-License-Identifier: Apache-2.0
#include "runtime/communicator_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/bytes.h"
#include "base/random.h"
#include "runtime/interfaces.h"
#include "runtime/rendezvous.h"

namespace spillway::runtime {
namespace {

constexpr unsigned kMostMtu = 9000;
constexpr unsigned kLeastMtu = 576;
// Ranks begin an operation at different times: what the first ones send may wait.
constexpr std::size_t kEarlyBytes = 4 * 1024 * 1024;
constexpr std::uint64_t kJobKey = 0x4A4F42204B455953ULL;

// Loopback has no link: memory is the limit, and a burst costs nobody anything.
void tune_for_loopback(net::DriverConfig& driver) {
  transport::EndpointTuning& tuning = driver.endpoint.tuning;
  tuning.paths = 1;  // spraying would only keep datagrams from being joined
  tuning.burst_packets = 7;
  tuning.report_packets = 28;
  tuning.receive_rate = base::gigabits_per_second(200);
  tuning.unsolicited = base::bytes(256 * 1024);
  tuning.probe_min = base::milliseconds(2);
  driver.endpoint.congestion.window_initial = base::bytes(512 * 1024);
  driver.endpoint.congestion.window_max = base::bytes(2 * 1024 * 1024);
  driver.endpoint.congestion.delay_target = base::milliseconds(1);
}

// Bursts and reports of less than this cost hosts more than they gain the network.
constexpr unsigned kBurstBytes = 24 * 1024;

void tune_for_link(base::BitRate rate, unsigned mtu, net::DriverConfig& driver) {
  transport::EndpointTuning& tuning = driver.endpoint.tuning;
  tuning.receive_rate = rate;
  const auto packets = static_cast<std::uint8_t>(std::clamp(kBurstBytes / mtu, 8U, 64U));
  tuning.burst_packets = packets;
  tuning.report_packets = packets;
  driver.send_rate = rate;
}

// The first line of a file as a number; nothing where there is none.
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) {
    return number;
  }
  return std::nullopt;
}

base::BitRate link_rate_of(const std::string& interface) {
  constexpr std::int64_t kUnknown = 10'000;  // megabits per second
  const std::int64_t megabits =
      number_in("/sys/class/net/" + interface + "/speed").value_or(kUnknown);
  return base::bits_per_second((megabits > 0 ? megabits : kUnknown) * 1'000'000);
}

unsigned mtu_of(const std::string& interface) {
  return static_cast<unsigned>(number_in("/sys/class/net/" + interface + "/mtu").value_or(1500));
}

base::Result<std::optional<std::int64_t>> number_from(const Environment& environment,
                                                      const char* name, std::int64_t least,
                                                      std::int64_t most) {
  const std::optional<std::string> text = environment.get(name);
  if (!text) {
    return std::optional<std::int64_t>();
  }
  char* end = nullptr;
  const long long value = std::strtoll(text->c_str(), &end, 10);
  if (*end != '\0' || value < least || value > most) {
    return base::invalid_argument(
        fmt::format("{}={} is not a number from {} to {}", name, *text, least, most));
  }
  return std::optional<std::int64_t>(value);
}

// Job number and seed, the same for all who met with this nonce.
packetize::Job job_of(const Nonce& nonce) {
  base::RandomBlock words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = base::load_le<std::uint32_t>(nonce.data() + i * 4);
  }
  const std::uint64_t seed = base::derive_key(kJobKey, words);
  return {.id = static_cast<std::uint16_t>(seed >> 48), .epoch = 1, .seed = seed};
}

base::Result<InterfaceAddress> own_interface(const CommunicatorSetup& setup,
                                             const Environment& environment) {
  const base::Result<InterfaceChoice> choice =
      interface_choice(environment, setup.launch.on_one_machine());
  if (!choice.ok()) {
    return choice.status();
  }
  const base::Result<std::vector<InterfaceAddress>> all = interfaces_of_host();
  if (!all.ok()) {
    return all.status();
  }
  if (setup.launch.listen) {
    for (const InterfaceAddress& each : *all) {
      if (each.address.with_port(0) == setup.launch.listen->with_port(0)) {
        return each;
      }
    }
  }
  return choose_interface(*all, *choice);
}

base::Status take_network(const CommunicatorOptions& options, const Environment& environment,
                          CommunicatorSetup& setup) {
  const base::Result<InterfaceAddress> interface = own_interface(setup, environment);
  if (!interface.ok()) {
    return interface.status();
  }
  setup.driver.listen = setup.launch.listen.value_or(interface->address);
  setup.is_loopback = interface->loopback;
  const auto rate = number_from(environment, "SPILLWAY_LINK_RATE", 1000, INT64_MAX);
  const auto mtu = number_from(environment, "SPILLWAY_MTU", kLeastMtu, 65536);
  const auto trim = number_from(environment, "SPILLWAY_TRIM_BYTES", 0, kMostMtu);
  const auto paths = number_from(environment, "SPILLWAY_PATHS", 1, 64);
  const auto threads = number_from(environment, "SPILLWAY_THREADS", 0, 64);
  for (const auto* read : {&rate, &mtu, &trim, &paths, &threads}) {
    if (!read->ok()) {
      return read->status();
    }
  }
  std::optional<base::BitRate> link_rate = options.link_rate;
  if (!link_rate && rate->has_value()) {
    link_rate = base::bits_per_second(**rate);
  }
  setup.mtu = options.mtu.value_or(static_cast<unsigned>(mtu->value_or(mtu_of(interface->name))));
  if (link_rate || !setup.is_loopback) {
    tune_for_link(link_rate.value_or(link_rate_of(interface->name)), setup.mtu, setup.driver);
  } else {
    tune_for_loopback(setup.driver);
  }
  if (paths->has_value()) {
    setup.driver.endpoint.tuning.paths = static_cast<std::uint8_t>(**paths);
  }
  setup.trim_bytes = options.trim_bytes.value_or(static_cast<unsigned>(trim->value_or(0)));
  setup.threads = options.threads;
  if (!setup.threads && threads->has_value()) {
    setup.threads = static_cast<unsigned>(**threads);
  }
  return {};
}

// Its place to meet is the id's; only the nonce counts.
base::Result<Launch> launch_by_id(const CommunicatorOptions& options) {
  const base::Result<UniqueIdContent> content = parse_unique_id(*options.id);
  if (!content.ok()) {
    return content.status();
  }
  const std::uint32_t servers =
      options.serves ? options.serves->servers : options.servers.value_or(0);
  const std::uint32_t workers = options.serves ? options.serves->workers : options.member.world;
  const std::uint32_t rank = options.serves ? workers + options.serves->index : options.member.rank;
  const std::uint32_t ranks = options.serves ? workers + servers : workers;
  if (workers == 0 || rank >= ranks || workers + servers > kMostRanks) {
    return base::invalid_argument(
        fmt::format("rank {} of a world of {} makes no sense", rank, ranks));
  }
  Launch launch;
  launch.rank = static_cast<std::uint16_t>(rank);
  launch.world = static_cast<std::uint16_t>(workers + servers);
  launch.servers = static_cast<std::uint16_t>(servers);
  launch.local_world =
      content->address.to_string().starts_with("127.") ? launch.world : std::uint16_t{1};
  launch.where.nonce = content->nonce;
  return launch;
}

base::Result<Launch> launch_by_environment(const CommunicatorOptions& options,
                                           const Environment& environment) {
  if (options.serves) {
    return launch_of_server(environment, *options.serves);
  }
  Environment told = environment;
  if (options.servers) {
    told.set("SPILLWAY_SERVERS", std::to_string(*options.servers));
  }
  return launch_from_environment(told);
}

}  // namespace

base::Result<CommunicatorSetup> prepare(const CommunicatorOptions& options,
                                        const Environment& environment) {
  CommunicatorSetup setup;
  setup.driver = net::driver_config_from_environment();
  const base::Result<Launch> launch =
      options.id ? launch_by_id(options) : launch_by_environment(options, environment);
  if (!launch.ok()) {
    return launch.status();
  }
  setup.launch = *launch;
  setup.group = {launch->rank, launch->world, launch->servers};
  setup.job = job_of(launch->where.nonce);
  setup.secret =
      options.secret.empty() ? environment.get_or("SPILLWAY_SECRET", "") : options.secret;
  if (base::Status status = take_network(options, environment, setup); !status.ok()) {
    return status;
  }
  const base::Result<Timeouts> timeouts =
      timeouts_from(environment, {options.peer_timeout, options.rendezvous_patience});
  if (!timeouts.ok()) {
    return timeouts.status();
  }
  setup.rendezvous_patience = timeouts->rendezvous;
  transport::EndpointConfig& endpoint = setup.driver.endpoint;
  endpoint.job = setup.job.id;
  endpoint.epoch = setup.job.epoch;
  endpoint.rank = setup.group.rank;
  endpoint.reports_unexpected = true;
  endpoint.tuning.peer_timeout = timeouts->peer;
  endpoint.limits.peers = setup.group.world;
  endpoint.limits.early_bytes = kEarlyBytes;
  return setup;
}

base::Result<packetize::Fabric> common_fabric(std::span<const RankCard> cards) {
  packetize::Fabric fabric{.mtu = kMostMtu, .trim_bytes = cards.front().trim_bytes};
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    fabric.mtu = std::min(fabric.mtu, cards[rank].mtu);
    if (cards[rank].trim_bytes != fabric.trim_bytes) {
      return base::invalid_argument(fmt::format(
          "rank 0 says the fabric trims to {} bytes, rank {} says {}; set SPILLWAY_TRIM_BYTES to "
          "the same everywhere",
          fabric.trim_bytes, rank, cards[rank].trim_bytes));
    }
    if (cards[rank].data.is_ipv6()) {
      fabric.ip = packetize::IpVersion::kV6;
    }
  }
  if (fabric.mtu < kLeastMtu) {
    return base::invalid_argument(
        fmt::format("an MTU of {} is too small; {} is the least", fabric.mtu, kLeastMtu));
  }
  return fabric;
}

}  // namespace spillway::runtime
