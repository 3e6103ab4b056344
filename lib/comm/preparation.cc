// SPDX-License-Identifier: Apache-2.0
#include "comm/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/bytes.h"
#include "base/random.h"
#include "collective/capabilities.h"
#include "comm/rendezvous/rendezvous.h"
#include "launch/launch.h"
#include "net/datagrams.h"
#include "wire/packet.h"

namespace spillway::comm {

namespace {

// Ranks begin an operation at different times: payloads of the first ones are buffered.
constexpr std::size_t kEarlyBytes = 4 * 1024 * 1024;
// The same with streams: no credit bounds what comes early, and a drop forces a retransmission.
constexpr std::size_t kStreamEarlyBytes = 16 * 1024 * 1024;

// Loopback has no link: memory is the limit, and bursts do no harm.
void tune_for_loopback(net::DriverConfig& driver) {
  transport::ExchangeConfig& exchange = driver.endpoint.exchange;
  exchange.paths = 1;  // more paths would only break up GSO runs
  exchange.burst_packets = 7;
  exchange.report_packets = 28;
  exchange.receive_rate = base::gigabits_per_second(200);
  exchange.unsolicited = base::bytes(256 * 1024);
  exchange.probe_min = base::milliseconds(2);
  exchange.window = {.initial = base::bytes(512 * 1024),
                     .most = base::bytes(2 * 1024 * 1024),
                     .delay_target = base::milliseconds(1)};
}

// Smaller bursts cost hosts more than they gain the network.
constexpr unsigned kBurstBytes = 24 * 1024;
// Reports cost a packet each way that nobody waits for.
constexpr unsigned kReportBytes = 36 * 1024;
// A loop that reads and reports returns to sending after hundreds of microseconds. One burst may
// carry what the link sends in this fraction of a second, or a fast link would idle meanwhile.
constexpr std::int64_t kTurnsPerSecond = 2000;
constexpr unsigned kLeastSentAtOnce = 8;  // packets

void tune_for_link(base::BitRate rate, unsigned mtu, net::DriverConfig& driver) {
  transport::ExchangeConfig& exchange = driver.endpoint.exchange;
  exchange.receive_rate = rate;
  // At most one GSO run: a longer burst would not leave in one piece.
  const unsigned least = std::clamp(unsigned{net::DatagramSender::kMaxRunBytes} / mtu, 1U, 8U);
  const auto packets = static_cast<std::uint8_t>(std::clamp(kBurstBytes / mtu, least, 64U));
  exchange.burst_packets = packets;
  exchange.report_packets = static_cast<std::uint8_t>(std::clamp(kReportBytes / mtu, least, 64U));
  driver.send_rate = rate;
  driver.send_burst = base::bytes(
      std::max<std::int64_t>(kLeastSentAtOnce * mtu, rate.count() / 8 / kTurnsPerSecond));
}

void tune_for_stream(Preparation& preparation) {
  constexpr packetize::PacketLimits kLimits = packetize::PacketLimits::on_stream();
  preparation.mtu = kLimits.mtu;
  preparation.trim_bytes = kLimits.trim_bytes;
  preparation.driver.send_rate = {};
  transport::ExchangeConfig& exchange = preparation.driver.endpoint.exchange;
  exchange.paths = 1;
  exchange.burst_packets = 16;
  exchange.trimmed_target.reset();
  exchange.probe_min = base::milliseconds(20);
}

// The number at the start of a file; nullopt if there is none.
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

base::Result<net::InterfaceAddress> own_interface(const Preparation& preparation,
                                                  const base::Environment& environment) {
  const base::Result<launch::InterfaceChoice> choice =
      launch::interface_choice(environment, preparation.launch.on_one_machine());
  if (!choice.ok()) {
    return choice.status();
  }
  const base::Result<std::vector<net::InterfaceAddress>> all = net::interface_addresses();
  if (!all.ok()) {
    return all.status();
  }
  if (preparation.launch.listen) {
    for (const net::InterfaceAddress& each : *all) {
      if (each.address.with_port(0) == preparation.launch.listen->with_port(0)) {
        return each;
      }
    }
  }
  return launch::choose_interface(*all, *choice);
}

// Above this, more packets would arrive trimmed than whole.
constexpr double kMaxTrimmedTarget = 0.5;

base::Status take_congestion(const CommunicatorConfig& config,
                             transport::EndpointConfig& endpoint) {
  const double target = config.trimmed_target.value_or(0.0);
  if (target > kMaxTrimmedTarget) {
    return base::invalid_argument(
        fmt::format("a trimmed target of {} is more than {}", target, kMaxTrimmedTarget));
  }
  if (target > 0.0) {
    endpoint.exchange.trimmed_target = target;
  }
  return {};
}

base::Status take_network(const CommunicatorConfig& config, const base::Environment& environment,
                          Preparation& preparation) {
  const base::Result<net::InterfaceAddress> interface = own_interface(preparation, environment);
  if (!interface.ok()) {
    return interface.status();
  }
  preparation.driver.listen = preparation.launch.listen.value_or(interface->address);
  preparation.is_loopback = interface->loopback;
  const auto rate = environment.optional_number("SPILLWAY_LINK_RATE");
  const auto mtu = environment.optional_number("SPILLWAY_MTU");
  const auto trim = environment.number("SPILLWAY_TRIM_BYTES");
  const auto threads = environment.optional_number("SPILLWAY_THREADS");
  for (const base::Status* status :
       {&rate.status(), &mtu.status(), &trim.status(), &threads.status()}) {
    if (!status->ok()) {
      return *status;
    }
  }
  std::optional<base::BitRate> link_rate = config.link_rate;
  if (!link_rate && rate->has_value()) {
    link_rate = base::bits_per_second(**rate);
  }
  preparation.mtu =
      config.mtu.value_or(static_cast<unsigned>(mtu->value_or(mtu_of(interface->name))));
  if (link_rate || !preparation.is_loopback) {
    tune_for_link(link_rate.value_or(link_rate_of(interface->name)), preparation.mtu,
                  preparation.driver);
  } else {
    tune_for_loopback(preparation.driver);
  }
  if (base::Status status = take_congestion(config, preparation.driver.endpoint); !status.ok()) {
    return status;
  }
  preparation.trim_bytes = config.trim_bytes.value_or(static_cast<unsigned>(*trim));
  preparation.threads = config.threads;
  if (!preparation.threads && threads->has_value()) {
    preparation.threads = static_cast<unsigned>(**threads);
  }
  return {};
}

collective::Algorithm algorithm_named(std::string_view name) {
  for (unsigned number = 0; number < collective::kAlgorithms; ++number) {
    const auto algorithm = static_cast<collective::Algorithm>(number);
    if (name == collective::algorithm_name(algorithm)) {
      return algorithm;
    }
  }
  return collective::Algorithm::kAutomatic;
}

// On loopback there are no links to measure, so shares are equal.
base::Status take_plan(const base::Environment& environment, Preparation& preparation) {
  const base::Result<std::string> algorithm = environment.checked_text("SPILLWAY_ALGORITHM");
  const auto rack_ranks = environment.number("SPILLWAY_RACK_RANKS");
  if (!algorithm.ok() || !rack_ranks.ok()) {
    return algorithm.ok() ? rack_ranks.status() : algorithm.status();
  }
  preparation.algorithm = algorithm_named(*algorithm);
  if (preparation.algorithm == collective::Algorithm::kSwitch && preparation.encrypt) {
    return base::invalid_argument(
        "SPILLWAY_ALGORITHM is switch and SPILLWAY_ENCRYPT is 1, but no switch can add what is "
        "encrypted: leave one of them away");
  }
  preparation.rack_ranks = static_cast<std::uint16_t>(*rack_ranks);
  preparation.shares =
      preparation.is_loopback ? collective::ShareRule::kEqual : collective::ShareRule::kAutomatic;
  return {};
}

// Ranks meet at the id's address, so `where` needs only the nonce.
base::Result<launch::Launch> launch_by_id(const CommunicatorConfig& config) {
  const base::Result<UniqueIdContent> content = parse_unique_id(*config.id);
  if (!content.ok()) {
    return content.status();
  }
  const std::uint32_t servers = config.serves ? config.serves->servers : config.servers.value_or(0);
  const std::uint32_t workers = config.serves ? config.serves->workers : config.member.world;
  const std::uint32_t rank = config.serves ? workers + config.serves->index : config.member.rank;
  const std::uint32_t ranks = config.serves ? workers + servers : workers;
  if (workers == 0 || rank >= ranks || workers + servers > launch::kMaxRanks) {
    return base::invalid_argument(
        fmt::format("rank {} of a world of {} makes no sense", rank, ranks));
  }
  launch::Launch launch;
  launch.rank = static_cast<std::uint16_t>(rank);
  launch.world = static_cast<std::uint16_t>(workers + servers);
  launch.servers = static_cast<std::uint16_t>(servers);
  launch.local_world =
      content->address.to_string().starts_with("127.") ? launch.world : std::uint16_t{1};
  launch.where.nonce = content->nonce;
  return launch;
}

// The other ranks are not known yet, only whether all of them run on this machine.
launch::Launch launch_of_slot(bool on_one_machine) {
  launch::Launch launch;
  launch.world = 2;
  launch.local_world = on_one_machine ? launch.world : std::uint16_t{1};
  return launch;
}

base::Result<launch::Launch> launch_by_environment(const CommunicatorConfig& config,
                                                   const base::Environment& environment) {
  if (config.serves) {
    return launch::launch_of_server(environment, *config.serves);
  }
  return launch::launch_from_environment(environment, config.servers);
}

// Reads settings that are used later: the secret, encryption, memory sharing, observers.
base::Status take_variables(const CommunicatorConfig& config, const base::Environment& environment,
                            Preparation& preparation) {
  preparation.identity = {config.name, preparation.launch.rank, preparation.launch.world,
                          preparation.launch.local_rank, preparation.launch.servers};
  base::Result<launch::Secret> secret = launch::secret_from(environment, config.secret);
  const base::Result<bool> encrypt = environment.flag("SPILLWAY_ENCRYPT");
  const base::Result<bool> local_copy = environment.flag("SPILLWAY_LOCAL_COPY");
  const base::Result<observe::ObserverConfig> observer =
      observe::observer_config(environment, preparation.identity);
  for (const base::Status* status :
       {&secret.status(), &encrypt.status(), &local_copy.status(), &observer.status()}) {
    if (!status->ok()) {
      return *status;
    }
  }
  if (*encrypt && secret->empty()) {
    return base::invalid_argument(
        "SPILLWAY_ENCRYPT is 1, but there is no secret to encrypt with: set SPILLWAY_SECRET_FILE "
        "at every rank");
  }
  preparation.secret = std::move(secret).value();
  preparation.encrypt = *encrypt;
  preparation.local_copy = *local_copy;
  preparation.observer = *observer;
  return {};
}

}  // namespace

base::Result<Preparation> prepare(const CommunicatorConfig& config,
                                  const base::Environment& environment) {
  Preparation preparation;
  const base::Result<launch::Launch> launch =
      config.slot_on_one_machine ? launch_of_slot(*config.slot_on_one_machine)
      : config.id                ? launch_by_id(config)
                                 : launch_by_environment(config, environment);
  if (!launch.ok()) {
    return launch.status();
  }
  preparation.launch = *launch;
  if (config.slot_on_one_machine || config.id) {
    const base::Result<std::uint16_t> local_rank = launch::local_rank_from(environment);
    if (!local_rank.ok()) {
      return local_rank.status();
    }
    preparation.launch.local_rank = *local_rank;
  }
  preparation.group = {launch->rank, launch->world, launch->servers};
  if (base::Status status = take_variables(config, environment, preparation); !status.ok()) {
    return status;
  }
  if (base::Status status = take_network(config, environment, preparation); !status.ok()) {
    return status;
  }
  const base::Result<launch::Timeouts> timeouts =
      launch::timeouts_from(environment, {config.peer_timeout, config.rendezvous_patience});
  if (!timeouts.ok()) {
    return timeouts.status();
  }
  preparation.rendezvous_patience = timeouts->rendezvous;
  transport::EndpointConfig& endpoint = preparation.driver.endpoint;
  endpoint.rank = preparation.group.rank;
  endpoint.reports_unexpected = true;
  endpoint.reports_stalls = true;
  endpoint.exchange.peer_timeout = timeouts->peer;
  endpoint.limits.peers = config.slot_on_one_machine ? launch::kMaxRanks : preparation.group.world;
  endpoint.limits.early_bytes = kEarlyBytes;
  if (base::Status status = take_carrier(environment, preparation); !status.ok()) {
    return status;
  }
  if (base::Status status = take_plan(environment, preparation); !status.ok()) {
    return status;
  }
  return preparation;
}

base::Status take_rank(const RankOfWorld& member, const base::Environment& environment,
                       Preparation& preparation) {
  const bool on_one_machine = preparation.launch.on_one_machine();
  preparation.launch.rank = static_cast<std::uint16_t>(member.rank);
  preparation.launch.world = static_cast<std::uint16_t>(member.world);
  preparation.launch.local_world = on_one_machine ? preparation.launch.world : std::uint16_t{1};
  preparation.group = {preparation.launch.rank, preparation.launch.world, 0};
  preparation.identity.rank = member.rank;
  preparation.identity.world = member.world;
  const base::Result<observe::ObserverConfig> observer =
      observe::observer_config(environment, preparation.identity);
  if (!observer.ok()) {
    return observer.status();
  }
  preparation.observer = *observer;
  return {};
}

base::Status take_carrier(const base::Environment& environment, Preparation& preparation) {
  const base::Result<net::Carrier> carrier = net::carrier_from(environment);
  if (!carrier.ok()) {
    return carrier.status();
  }
  preparation.driver.carrier = *carrier;
  if (*carrier != net::Carrier::kUdp) {
    preparation.driver.endpoint.limits.early_bytes = kStreamEarlyBytes;
  }
  if (*carrier == net::Carrier::kTcp) {
    tune_for_stream(preparation);
  }
  return {};
}

// ------------------------------------------------------------------ operations

namespace {

using collective::Algorithm;
using collective::Codec;
using collective::Operation;
using collective::Tolerance;

bool can_be_added(const Operation& operation, const collective::Group& group) {
  return operation.tolerance && operation.kind == collective::Kind::kAllReduce &&
         !collective::uses_entropy(operation.tolerance->codec) &&
         group.world <= collective::capabilities_of(Codec::kLevels).ranks;
}

// A request for more bits than levels have uses blocks, never fewer bits.
Tolerance with_codec_for_switches(Tolerance tolerance) {
  if (tolerance.codec != Codec::kPlanes) {
    return tolerance;
  }
  const auto& precisions = collective::capabilities_of(Codec::kLevels).precisions;
  for (unsigned bits = tolerance.precision; bits <= collective::kMostPrecision; ++bits) {
    if (precisions.has(bits)) {
      tolerance.codec = Codec::kLevels;
      tolerance.precision = static_cast<std::uint8_t>(bits);
      return tolerance;
    }
  }
  tolerance.codec = Codec::kBlocks;
  return tolerance;
}

}  // namespace

Operation with_algorithm(const Operation& asked, Algorithm algorithm,
                         const collective::Group& group) {
  Operation operation = asked;
  if (asked.algorithm != Algorithm::kAutomatic || collective::is_point_to_point(asked.kind)) {
    return operation;
  }
  if (algorithm == Algorithm::kSwitch) {
    if (can_be_added(asked, group)) {
      operation.algorithm = Algorithm::kSwitch;
      operation.tolerance = with_codec_for_switches(*asked.tolerance);
    }
  } else if (!asked.tolerance ||
             (asked.kind == collective::Kind::kAllReduce &&
              collective::uses_entropy(asked.tolerance->codec) && algorithm == Algorithm::kRing)) {
    operation.algorithm = algorithm;
  }
  return operation;
}

}  // namespace spillway::comm
