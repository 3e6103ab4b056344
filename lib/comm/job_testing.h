// SPDX-License-Identifier: Apache-2.0
//
// A job for tests: workers and parameter servers on real sockets, all as threads of one process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "harness/slowdown.h"

namespace spillway::comm::testing_job {

// A test that waits longer has failed.
inline std::chrono::milliseconds test_patience() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(harness::patience(harness::kHangs));
}
inline base::Duration test_patience_duration() {
  return base::milliseconds(test_patience().count());
}

// How a server ended, and its totals.
struct Served {
  std::optional<base::Status> end;
  ServerTotals totals;
};

inline CommunicatorConfig config_of(const UniqueId& id, std::string_view secret) {
  CommunicatorConfig config;
  config.id = id;
  config.rendezvous_patience = test_patience_duration();
  if (!secret.empty()) {
    config.secret = launch::Secret(secret);
  }
  return config;
}

// Runs `body` at every worker, and servers until they end.
inline std::vector<Served> run_job(std::uint16_t workers, std::uint16_t servers,
                                   const std::function<void(Communicator&)>& body,
                                   std::string_view secret = {}) {
  // A rank that waits for a processor is silent too. The variable also covers communicators that
  // `body` makes.
  ::setenv("SPILLWAY_PEER_TIMEOUT", "3600", 1);
  const UniqueId id = create_unique_id(net::SocketAddress::parse("127.0.0.1:0").value()).value();
  std::vector<std::thread> threads;
  std::vector<Served> served(servers);
  for (std::uint16_t index = 0; index < servers; ++index) {
    threads.emplace_back([&, index] {
      CommunicatorConfig config = config_of(id, secret);
      config.serves = {.index = index, .servers = servers, .workers = workers};
      auto server = Communicator::create(config);
      ASSERT_TRUE(server.ok()) << server.status().message();
      served[index].end = (*server)->wait_served(test_patience());
      served[index].totals = (*server)->server_totals();
      EXPECT_FALSE((*server)->submit({}).ok());
    });
  }
  for (std::uint16_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorConfig config = config_of(id, secret);
      config.member = {rank, workers};
      config.servers = servers;
      auto worker = Communicator::create(config);
      ASSERT_TRUE(worker.ok()) << worker.status().message();
      body(**worker);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return served;
}

}  // namespace spillway::comm::testing_job
