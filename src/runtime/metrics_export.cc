// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics_export.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/debug_log.h"
#include "runtime/path_pattern.h"
#include "runtime/signals_blocked.h"
#include "runtime/warned_number.h"

namespace spillway::runtime {
namespace {

constexpr std::uint32_t kDefaultSeconds = 10;
constexpr std::uint32_t kMostSeconds = 86'400;
constexpr std::uint32_t kMostPort = 65'535;

bool names_process(const std::string& pattern) {
  return pattern.find("%r") != std::string::npos || pattern.find("%p") != std::string::npos;
}

// "dir/name.prom" as "dir/name.1.prom".
std::string with_local_rank(const std::string& path, std::uint32_t local_rank) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = path.rfind('.');
  const std::size_t at = dot == std::string::npos || dot <= name ? path.size() : dot;
  return fmt::format("{}.{}{}", path.substr(0, at), local_rank, path.substr(at));
}

std::string metrics_path(const Environment& environment, const Identity& identity) {
  const std::string pattern = environment.get_or("SPILLWAY_METRICS_FILE", "");
  const std::string path = expand_path(pattern, &identity);
  const bool is_shared = identity.local_rank > 0 && !names_process(pattern);
  return !path.empty() && is_shared ? with_local_rank(path, identity.local_rank) : path;
}

std::optional<net::SocketAddress> asked_address(const Environment& environment) {
  if (const auto text = environment.get("SPILLWAY_METRICS_LISTEN")) {
    const auto address = net::SocketAddress::parse(*text);
    if (address.ok()) {
      return *address;
    }
    log_warn("SPILLWAY_METRICS_LISTEN={}: {}: metrics are not served", *text,
             address.status().message());
    return std::nullopt;
  }
  const std::uint32_t port =
      read_number(environment, {.name = "SPILLWAY_METRICS_PORT", .least = 1, .most = kMostPort});
  if (port == 0) {
    return std::nullopt;
  }
  return net::SocketAddress::parse("127.0.0.1:0")->with_port(static_cast<std::uint16_t>(port));
}

std::optional<net::SocketAddress> metrics_address(const Environment& environment,
                                                  const Identity& identity) {
  const auto asked = asked_address(environment);
  if (!asked || asked->port() == 0) {
    return asked;
  }
  const std::uint32_t port = asked->port() + identity.local_rank;
  if (port > kMostPort) {
    log_warn(
        "metrics are not served: {} and local rank {} make a port beyond {}; choose a lower one",
        asked->to_string(), identity.local_rank, kMostPort);
    return std::nullopt;
  }
  return asked->with_port(static_cast<std::uint16_t>(port));
}

std::unique_ptr<net::MetricsServer> start_server(const net::SocketAddress& at,
                                                 const std::function<std::string()>& render) {
  const SignalsBlocked blocked;
  auto server = net::MetricsServer::start(at, render);
  if (!server.ok()) {
    log_warn("metrics are not served: {}", server.status().message());
    return nullptr;
  }
  log_info(LogSubsystem::kMetrics, "metrics are at http://{}/metrics",
           server.value()->address().to_string());
  return std::move(server).value();
}

}  // namespace

MetricsSettings metrics_settings(const Environment& environment, const Identity& identity) {
  const std::uint32_t seconds = read_number(environment, {.name = "SPILLWAY_METRICS_SECONDS",
                                                          .least = 1,
                                                          .most = kMostSeconds,
                                                          .otherwise = kDefaultSeconds});
  return {.file = metrics_path(environment, identity),
          .period = base::seconds(seconds),
          .listen = metrics_address(environment, identity)};
}

MetricsExport::MetricsExport(const MetricsSettings& settings,
                             const std::function<std::string()>& render) {
  if (!settings.file.empty()) {
    file_ = std::make_unique<MetricsFile>(settings.file, settings.period, render);
  }
  if (settings.listen) {
    server_ = start_server(*settings.listen, render);
  }
}

std::optional<net::SocketAddress> MetricsExport::address() const {
  return server_ ? std::optional(server_->address()) : std::nullopt;
}

}  // namespace spillway::runtime
