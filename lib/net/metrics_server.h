// SPDX-License-Identifier: Apache-2.0
//
// Metrics for a monitoring system: answers `GET /metrics` over HTTP/1.0 with a text rendered on
// request, and anything else with 404 or 400. One thread of its own serves all connections, so none
// waits for another; each is closed after its answer.
//
// Limits: a request has at most kMaxRequestBytes. A client has kPatience for its whole request and
// as long again to read the answer, however it spreads the bytes. Beyond kMaxConnections, or one
// address's share of them, the oldest connection of the address with the most is closed
// (stranger_table.h). The server's thread calls `render`; destroying the server ends it.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/stranger_table.h"
#include "net/system_call.h"

namespace spillway::net {

class MetricsServer {
 public:
  static constexpr std::size_t kMaxRequestBytes = 4096;
  static constexpr std::size_t kMaxConnections = 16;
  static constexpr base::Duration kPatience = base::seconds(2);

  static base::Result<std::unique_ptr<MetricsServer>> start(const SocketAddress& listen,
                                                            std::function<std::string()> render);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // With the port that the kernel chose if 0 was given.
  const SocketAddress& address() const { return address_; }

 private:
  MetricsServer(UniqueFd listener, UniqueFd stop, const SocketAddress& address,
                std::function<std::string()> render);

  struct Connection {
    StrangerTable::Id id;
    UniqueFd fd;
    base::Instant leave_by;
    std::string request{};
    std::string unsent{};  // rest of the answer
    bool is_over = false;
  };

  void serve();
  void accept();
  void close(StrangerTable::Id id);
  void read_request(Connection& connection);
  std::string answer_to(const std::string& request) const;
  static void send_some(Connection& connection);

  UniqueFd listener_;
  UniqueFd stop_;
  SocketAddress address_;
  std::function<std::string()> render_;
  base::MonotonicClock clock_;
  std::list<Connection> connections_;  // belongs to the thread
  StrangerTable::Shared places_{.strangers = 0, .most = kMaxConnections};
  StrangerTable table_{kMaxConnections, places_};
  StrangerTable::Id next_id_ = 1;
  std::thread thread_;
};

}  // namespace spillway::net
