// SPDX-License-Identifier: Apache-2.0
#include "launch/servers.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

base::Environment worker(const std::string& rank, const std::string& servers) {
  base::Environment told{{"RANK", rank},
                         {"WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "head"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RUN_ID", "7"},
                         {"SPILLWAY_COMM_ID", "10.0.0.1:7100"}};
  told.set("SPILLWAY_SERVERS", servers);
  return told;
}

TEST(ServersLaunch, WorkersKeepTheirRanksAndServersComeBehindThem) {
  const base::Result<Launch> launch = launch_from_environment(worker("3", "2"));
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->world, 6);
  EXPECT_EQ(launch->servers, 2);
}

TEST(ServersLaunch, AServerWithoutTheLaunchersWordsMeetsTheWorkers) {
  const base::Result<Launch> of_worker = launch_from_environment(worker("0", "2"));
  const base::Result<Launch> of_server = launch_of_server({{"SPILLWAY_COMM_ID", "10.0.0.1:7100"}},
                                                          {.index = 1, .servers = 2, .workers = 4});
  ASSERT_TRUE(of_worker.ok() && of_server.ok());
  EXPECT_EQ(of_server->rank, 5);
  EXPECT_EQ(of_server->world, of_worker->world);
  EXPECT_EQ(of_server->where.nonce, of_worker->where.nonce);
  EXPECT_EQ(of_server->where.to_string(), of_worker->where.to_string());
}

TEST(ServersLaunch, WithoutServersNothingChanges) {
  const base::Result<Launch> with_none = launch_from_environment(worker("1", "0"));
  const base::Result<Launch> unset = launch_from_environment(worker("1", ""));
  ASSERT_TRUE(with_none.ok() && unset.ok());
  EXPECT_EQ(with_none->world, 4);
  EXPECT_EQ(with_none->where.nonce, unset->where.nonce);
}

TEST(ServersLaunch, WhatTheCallerSaysGoesBeforeTheVariables) {
  const base::Result<Launch> with_two = launch_from_environment(worker("1", "1"), 2);
  ASSERT_TRUE(with_two.ok()) << with_two.status().message();
  EXPECT_EQ(with_two->servers, 2);
  EXPECT_EQ(launch_from_environment(worker("1", "1"), 0)->world, 4);
  const base::Result<Launch> server =
      launch_of_server({{"SPILLWAY_COMM_ID", "10.0.0.9:1"}},
                       {.index = 0, .servers = 2, .workers = 4, .place = "10.0.0.1:7100"});
  ASSERT_TRUE(server.ok()) << server.status().message();
  EXPECT_EQ(server->where.nonce, with_two->where.nonce);
}

TEST(ServersLaunch, WhatDoesNotFitIsRefusedWithAWayOut) {
  base::Environment nowhere = worker("1", "1");
  nowhere.set("SPILLWAY_COMM_ID", "");
  EXPECT_NE(launch_from_environment(nowhere).status().message().find("set SPILLWAY_COMM_ID"),
            std::string::npos);
  EXPECT_FALSE(launch_from_environment(worker("1", "some")).ok());
  EXPECT_FALSE(launch_from_environment(worker("1", "4095")).ok());
  const base::Environment place{{"SPILLWAY_COMM_ID", "10.0.0.1:7100"}};
  EXPECT_FALSE(launch_of_server(place, {.index = 2, .servers = 2, .workers = 1}).ok());
  EXPECT_FALSE(launch_of_server({}, {.index = 0, .servers = 1, .workers = 1}).ok());
}

TEST(ServersLaunch, InALabAllMeetAtTheFirstAddress) {
  const base::Environment lab{{"SPILLWAY_PEERS", "10.77.0.1:7000,10.77.0.2:7000,10.77.0.3:7000"},
                              {"SPILLWAY_LISTEN", "10.77.0.3:7000"}};
  const base::Result<Launch> server =
      launch_of_server(lab, {.index = 0, .servers = 1, .workers = 2});
  ASSERT_TRUE(server.ok()) << server.status().message();
  EXPECT_EQ(server->peers.size(), 3U);
  EXPECT_NE(server->where.to_string().find("10.77.0.1"), std::string::npos);
  EXPECT_FALSE(launch_of_server(lab, {.index = 0, .servers = 1, .workers = 3}).ok());
}

}  // namespace
}  // namespace spillway::runtime
