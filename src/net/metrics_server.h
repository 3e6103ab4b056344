// SPDX-License-Identifier: Apache-2.0
//
// Numbers for a monitoring system: answers `GET /metrics` over HTTP/1.0 with a text that is made
// when it is asked for, and anything else with 404 or 400. One thread of its own, one connection at
// a time, closed after the answer.
//
// Limits: a request is kMaxRequestBytes long, and whoever dawdles for kPatience is hung up on.
// `render` is called from the server's thread; destroying the server ends it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::net {

class MetricsServer {
 public:
  static constexpr std::size_t kMaxRequestBytes = 4096;
  static constexpr base::Duration kPatience = base::seconds(2);

  static base::Result<std::unique_ptr<MetricsServer>> start(const SocketAddress& listen,
                                                            std::function<std::string()> render);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // With the port that was given to it, where it asked for any.
  const SocketAddress& address() const { return address_; }

 private:
  MetricsServer(UniqueFd listener, UniqueFd stop, const SocketAddress& address,
                std::function<std::string()> render);

  void serve();
  void answer(int connection);
  bool wait_readable(int fd) const;
  std::string read_request(int connection) const;

  UniqueFd listener_;
  UniqueFd stop_;
  SocketAddress address_;
  std::function<std::string()> render_;
  std::thread thread_;
};

}  // namespace spillway::net
