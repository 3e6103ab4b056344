// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "launch/launch.h"

namespace spillway::launch {

namespace {

using Variables = std::map<std::string, std::string>;

const Variables kSpillway = {
    {"SPILLWAY_RANK", "1"}, {"SPILLWAY_WORLD_SIZE", "10"}, {"SPILLWAY_COMM_ID", "10.0.0.1:29517"}};
const Variables kTorchrun = {{"RANK", "2"},
                             {"WORLD_SIZE", "20"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "head"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
// As set by Open MPI 4.1's mpirun.
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"},
    {"OMPI_COMM_WORLD_SIZE", "30"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "30"},
    {"OMPI_MCA_ess_base_jobid", "1851195393"},
    {"OMPI_MCA_orte_precondition_transports", "cbbb3d7080e51032-6edb5b6ebc2addac"},
    {"OMPI_MCA_orte_hnp_uri", "1851195392.0;tcp://192.0.2.2,10.0.0.2:33685;tcp6://[fd00::2]:60473"},
    {"OMPI_MCA_orte_local_daemon_uri", "1851195392.0;tcp://192.0.2.2,10.0.0.2:33685"},
    {"PMIX_NAMESPACE", "1851195393"},
    {"PMIX_RANK", "3"}};
const Variables kPmi = {{"PMI_RANK", "4"},
                        {"PMI_SIZE", "40"},
                        {"PMI_JOBID", "77.0"},
                        {"MPI_LOCALRANKID", "4"},
                        {"MPI_LOCALNRANKS", "40"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "99"},
                          {"SLURM_STEP_NUM_TASKS", "50"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "5(x10)"},
                          {"SLURM_STEP_NODELIST", "gnode[10,20-25]"},
                          {"SLURM_JOB_ID", "4242"},
                          {"SLURM_STEP_ID", "0"}};

base::Environment environment(std::initializer_list<Variables> families,
                              const Variables& changes = {}) {
  Variables all = changes;
  for (const Variables& family : families) {
    all.insert(family.begin(), family.end());
  }
  base::Environment made;
  for (const auto& [name, value] : all) {
    made.set(name, value);
  }
  return made;
}

std::string error_of(const base::Environment& environment) {
  const auto launch = launch_from_environment(environment);
  return launch.ok() ? "no error" : launch.status().message();
}

void expect_position(const base::Environment& environment, const std::string& launcher, int rank,
                     int world) {
  const auto launch = launch_from_environment(environment);
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  EXPECT_EQ(launch->launcher, launcher);
  EXPECT_EQ(launch->rank, rank);
  EXPECT_EQ(launch->world, world);
}

TEST(Launch, FamiliesSpeakInTheirOrderAndAreNotMixed) {
  expect_position(environment({kSpillway, kTorchrun, kOpenMpi, kPmi, kSlurm}), "spillway", 1, 10);
  expect_position(environment({kTorchrun, kOpenMpi, kPmi, kSlurm}), "torchrun", 2, 20);
  expect_position(environment({kOpenMpi, kPmi, kSlurm}), "openmpi", 3, 30);
  expect_position(environment({kPmi, kSlurm}), "pmix", 4, 40);
  expect_position(environment({kSlurm}), "slurm", 5, 50);
}

TEST(Launch, ALoneSizeDoesNotSpeak) {
  expect_position(environment({kSlurm}, {{"WORLD_SIZE", "8"}}), "slurm", 5, 50);
  expect_position(environment({kSlurm}, {{"PMIX_RANK", "5"}}), "slurm", 5, 50);
}

TEST(Launch, NeverTakesTheSizeFromAnotherFamily) {
  EXPECT_EQ(error_of(environment({kSlurm}, {{"RANK", "0"}})),
            "RANK is set but WORLD_SIZE is not: set both, or SPILLWAY_RANK and SPILLWAY_WORLD_SIZE "
            "instead");
}

TEST(Launch, ErrorsNameTheVariable) {
  const auto says = [](const base::Environment& environment, const std::string& words) {
    const std::string error = error_of(environment);
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  says({}, "no launcher has set a rank");
  says({{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set but RANK is not");
  says({{"PMIX_RANK", "0"}}, "PMIX_RANK is set, but PMIx leaves no number of ranks");
  says(environment({kTorchrun}, {{"RANK", "x"}}), "RANK is 'x'");
  says(environment({kTorchrun}, {{"RANK", "-1"}}), "RANK is '-1'");
  says(environment({kTorchrun}, {{"RANK", "20"}}), "RANK is 20 and WORLD_SIZE is 20");
  says(environment({kTorchrun}, {{"WORLD_SIZE", "4097"}}), "WORLD_SIZE is '4097'");
  says(environment({kTorchrun}, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK is 4");
  says(environment({kTorchrun}, {{"MASTER_ADDR", ""}}), "MASTER_ADDR is not");
  says(environment({kTorchrun}, {{"MASTER_PORT", ""}}), "MASTER_PORT is not");
  says(environment({kTorchrun}, {{"MASTER_PORT", "http"}}), "MASTER_PORT is 'http'");
  says(environment({kSpillway}, {{"SPILLWAY_COMM_ID", ""}}), "set SPILLWAY_COMM_ID=host:port");
  says(environment({kSpillway}, {{"SPILLWAY_COMM_ID", "10.0.0.1"}}),
       "SPILLWAY_COMM_ID is '10.0.0.1'");
  says(environment({kSpillway}, {{"SPILLWAY_COMM_ID", "fd00::1:7"}}), "SPILLWAY_COMM_ID");
  says(environment({kSpillway}, {{"SPILLWAY_PEERS", "10.0.0.1:7"}}), "names 1 addresses for 10");
  says(environment({kSpillway}, {{"SPILLWAY_LISTEN", "here"}}),
       "SPILLWAY_LISTEN is 'here': it must be an address and a port");
  says(environment({kSpillway}, {{"SPILLWAY_PEERS", "300.0.0.1:7"}}),
       "SPILLWAY_PEERS is '300.0.0.1:7': it must be addresses with ports");
  says(environment({kSlurm}, {{"SLURM_STEP_NODELIST", "n["}}), "SLURM_STEP_NODELIST: 'n['");
  says(environment({kSlurm}, {{"SLURM_JOB_ID", ""}}), "SLURM_JOB_ID");
  says(environment({kPmi}, {{"PMI_JOBID", ""}}), "set SPILLWAY_COMM_ID=host:port");
}

TEST(Launch, TheCommIdGoesBeforeWhatTheLauncherSays) {
  for (const Variables& family : {kTorchrun, kOpenMpi, kPmi, kSlurm}) {
    const auto launch =
        launch_from_environment(environment({family}, {{"SPILLWAY_COMM_ID", "[fd00::1]:29517"}}));
    ASSERT_TRUE(launch.ok()) << launch.status().message();
    EXPECT_EQ(launch->where.places, (std::vector<Place>{{"fd00::1", 29517}}));
    EXPECT_TRUE(launch->where.local_name.empty());
  }
}

TEST(Launch, TorchsOwnPortIsLeftAlone) {
  const auto launch = launch_from_environment(environment({kTorchrun}));
  ASSERT_EQ(launch->where.places.size(), kDerivedPorts);
  for (const Place& place : launch->where.places) {
    EXPECT_EQ(place.host, "head");
    EXPECT_GE(place.port, 20000);
    EXPECT_LT(place.port, 32768);
    EXPECT_NE(place.port, 29500);
  }
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_world, 4);
  EXPECT_FALSE(launch->on_one_machine());
}

TEST(Launch, ARestartedJobIsAnotherJob) {
  const auto first = launch_from_environment(environment({kTorchrun}));
  const auto other_rank = launch_from_environment(environment({kTorchrun}, {{"RANK", "3"}}));
  const auto restarted =
      launch_from_environment(environment({kTorchrun}, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  const auto other_run =
      launch_from_environment(environment({kTorchrun}, {{"TORCHELASTIC_RUN_ID", "b"}}));
  EXPECT_EQ(first->where.nonce, other_rank->where.nonce);
  EXPECT_EQ(first->where.places, other_rank->where.places);
  EXPECT_NE(first->where.nonce, restarted->where.nonce);
  EXPECT_NE(first->where.places, restarted->where.places);
  EXPECT_NE(first->where.nonce, other_run->where.nonce);
}

TEST(Launch, AMasterThatIsToldLocalhostMeetsTheOthers) {
  const auto master =
      launch_from_environment(environment({kTorchrun}, {{"MASTER_ADDR", "localhost"}}));
  const auto worker = launch_from_environment(environment({kTorchrun}));
  EXPECT_EQ(master->where.nonce, worker->where.nonce);
  EXPECT_EQ(master->where.places.front().port, worker->where.places.front().port);
}

TEST(Launch, OpenMpiOnOneMachineMeetsAtALocalSocket) {
  const auto launch = launch_from_environment(environment({kOpenMpi}));
  EXPECT_TRUE(launch->on_one_machine());
  EXPECT_TRUE(launch->where.places.empty());
  EXPECT_TRUE(launch->where.local_name.starts_with("spillway-openmpi-"));
  const auto other_job = launch_from_environment(
      environment({kOpenMpi}, {{"PMIX_NAMESPACE", "7"}, {"OMPI_MCA_ess_base_jobid", "7"}}));
  EXPECT_NE(launch->where.local_name, other_job->where.local_name);
}

TEST(Launch, OpenMpiAcrossMachinesMeetsWhereMpirunIs) {
  const Variables spread = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "15"}};
  const auto launch = launch_from_environment(environment({kOpenMpi}, spread));
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  ASSERT_EQ(launch->where.places.size(), 3 * kDerivedPorts);
  EXPECT_EQ(launch->where.places[0].host, "192.0.2.2");
  EXPECT_EQ(launch->where.places[kDerivedPorts].host, "10.0.0.2");
  EXPECT_EQ(launch->where.places[2 * kDerivedPorts].host, "fd00::2");

  Variables elsewhere = spread;
  elsewhere["OMPI_COMM_WORLD_RANK"] = "0";
  elsewhere["OMPI_MCA_orte_local_daemon_uri"] = "1851195392.1;tcp://10.0.0.3:1";
  EXPECT_NE(error_of(environment({kOpenMpi}, elsewhere)).find("rank 0 is not on mpirun's machine"),
            std::string::npos);
  Variables silent = spread;
  silent["OMPI_MCA_orte_hnp_uri"] = "";
  EXPECT_NE(error_of(environment({kOpenMpi}, silent)).find("set SPILLWAY_COMM_ID"),
            std::string::npos);
}

TEST(Launch, SlurmMeetsOnTheFirstNode) {
  const auto launch = launch_from_environment(environment({kSlurm}));
  EXPECT_EQ(launch->where.places.front().host, "gnode10");
  EXPECT_EQ(launch->local_world, 5);
  const auto other_job = launch_from_environment(environment({kSlurm}, {{"SLURM_JOB_ID", "4243"}}));
  EXPECT_NE(launch->where.places, other_job->where.places);
  EXPECT_NE(launch->where.nonce, other_job->where.nonce);
}

TEST(Launch, PmiUnderSlurmMeetsWhereSlurmSays) {
  const auto launch =
      launch_from_environment(environment({kPmi, kSlurm}, {{"MPI_LOCALNRANKS", "5"}}));
  EXPECT_EQ(launch->launcher, "pmix");
  EXPECT_EQ(launch->where.places.front().host, "gnode10");
}

TEST(Launch, ALabsPeersGoWithTheRanksOfTorchrun) {
  const auto launch = launch_from_environment({{"RANK", "1"},
                                               {"WORLD_SIZE", "2"},
                                               {"LOCAL_RANK", "0"},
                                               {"LOCAL_WORLD_SIZE", "1"},
                                               {"MASTER_ADDR", "10.77.0.1"},
                                               {"MASTER_PORT", "29500"},
                                               {"SPILLWAY_PEERS", "10.77.0.1:7077,10.77.0.2:7077"},
                                               {"SPILLWAY_LISTEN", "10.77.0.2:7077"}});
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  EXPECT_EQ(launch->launcher, "torchrun");
  ASSERT_EQ(launch->peers.size(), 2U);
  EXPECT_EQ(launch->peers[1].to_string(), "10.77.0.2:7077");
  EXPECT_EQ(launch->listen->to_string(), "10.77.0.2:7077");
  EXPECT_EQ(launch->where.places.front().host, "10.77.0.1");
}

TEST(Launch, PeersAreAMeetingPlaceToo) {
  const auto launch =
      launch_from_environment({{"SPILLWAY_RANK", "0"},
                               {"SPILLWAY_WORLD_SIZE", "2"},
                               {"SPILLWAY_PEERS", "[fd00::1]:7077,[fd00::2]:7077"}});
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  EXPECT_EQ(launch->where.places, (std::vector<Place>{{"fd00::1", 7077}}));
}

TEST(LaunchOutline, SaysWhoThisIsAndWhereRankZeroIs) {
  const auto outline = [](const base::Environment& environment) {
    return outline_of_launch(environment).value().value();
  };
  const LaunchOutline one_machine = outline(environment({kOpenMpi}));
  EXPECT_EQ(one_machine.launcher, "openmpi");
  EXPECT_EQ(one_machine.position.rank, 3);
  EXPECT_EQ(one_machine.position.local_world, 30);
  EXPECT_TRUE(one_machine.position.is_local_known);
  EXPECT_EQ(one_machine.store.host, "127.0.0.1");
  const LaunchOutline several =
      outline(environment({kOpenMpi}, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}));
  EXPECT_EQ(several.store.host, "192.0.2.2");
  EXPECT_EQ(several.store.port, one_machine.store.port);
  EXPECT_EQ(outline(environment({kSlurm})).store.host, "gnode10");
  const LaunchOutline told = outline(environment({kSpillway}));
  EXPECT_EQ(told.store.to_string(), "10.0.0.1:29518");  // the library may listen at 29517
  EXPECT_FALSE(told.position.is_local_known);
}

TEST(LaunchOutline, ItsPortIsNoneOfSpillways) {
  const base::Environment slurm = environment({kSlurm});
  const std::uint16_t port = outline_of_launch(slurm).value()->store.port;
  EXPECT_GE(port, 20'000);
  const base::Result<Launch> launch = launch_from_environment(slurm);
  for (const Place& place : launch->where.places) {
    EXPECT_NE(place.port, port);
  }
}

TEST(LaunchOutline, IsThereWhereALauncherHasSetARank) {
  EXPECT_TRUE(is_launched(environment({kSlurm})));
  EXPECT_FALSE(is_launched({{"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(outline_of_launch({}).value().has_value());
  EXPECT_FALSE(outline_of_launch({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).ok());
}

TEST(Launch, AloneThereIsNoNeedToMeet) {
  const auto launch =
      launch_from_environment({{"SPILLWAY_RANK", "0"}, {"SPILLWAY_WORLD_SIZE", "1"}});
  ASSERT_TRUE(launch.ok()) << launch.status().message();
  EXPECT_TRUE(launch->where.empty());
}

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

TEST(Timeouts, TheCallerGoesBeforeTheEnvironmentAndThatBeforeTheDefaults) {
  const auto plain = timeouts_from({}, {});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->peer, base::milliseconds(1400));
  EXPECT_EQ(plain->rendezvous, base::seconds(60));

  const base::Environment told = {{"SPILLWAY_PEER_TIMEOUT", "7.5"},
                                  {"SPILLWAY_RENDEZVOUS_TIMEOUT", "3"}};
  const auto variables = timeouts_from(told, {});
  ASSERT_TRUE(variables.ok());
  EXPECT_EQ(variables->peer, base::milliseconds(7500));
  EXPECT_EQ(variables->rendezvous, base::seconds(3));

  const auto caller = timeouts_from(told, {base::seconds(1), std::nullopt});
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->peer, base::seconds(1));
  EXPECT_EQ(caller->rendezvous, base::seconds(3));
}

TEST(Timeouts, AVariableThatMakesNoSenseIsNamed) {
  for (const char* text : {"0", "-1", "soon", "5s", "nan", "inf", "0.01", "1e9"}) {
    const auto timeouts =
        timeouts_from({{"SPILLWAY_PEER_TIMEOUT", text}}, {base::seconds(1), std::nullopt});
    ASSERT_FALSE(timeouts.ok()) << text;
    EXPECT_EQ(timeouts.status().message(),
              "SPILLWAY_PEER_TIMEOUT is '" + std::string(text) +
                  "': it must be a number of seconds from 0.1 to 86400, such as 5 or 0.5");
  }
  EXPECT_FALSE(timeouts_from({{"SPILLWAY_RENDEZVOUS_TIMEOUT", "x"}}, {}).ok());
}

const base::Status kDead{base::StatusCode::kPeerFailed, "rank 1 is dead"};

TEST(SilentPeer, OneThatWasThereMayBeStarved) {
  const base::Status said = with_advice(kDead, {.address = {}, .has_worked = true});
  EXPECT_EQ(said.code(), base::StatusCode::kPeerFailed);
  EXPECT_EQ(said.message(),
            "rank 1 is dead; if it lives but waits for a processor, set SPILLWAY_PEER_TIMEOUT to "
            "more seconds");
}

TEST(SilentPeer, OneThatNeverWasMayBeOutOfReach) {
  const auto address = net::SocketAddress::parse("10.9.8.7:4321");
  const base::Status said = with_advice(kDead, {.address = *address, .has_worked = false});
  EXPECT_NE(said.message().find("UDP goes from here to 10.9.8.7:4321"), std::string::npos);
  EXPECT_NE(said.message().find("SPILLWAY_SOCKET_IFNAME"), std::string::npos);
}

using Names = std::vector<std::string>;

TEST(NodeList, IsExpandedInItsOrderAndWidth) {
  EXPECT_EQ(*expand_node_list("gnode7"), Names{"gnode7"});
  EXPECT_EQ(*expand_node_list("gnode[10,20-22,037]"),
            (Names{"gnode10", "gnode20", "gnode21", "gnode22", "gnode037"}));
  EXPECT_EQ(*expand_node_list("n[08-11]"), (Names{"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(*expand_node_list("login1,a[1-2]-ib,z"), (Names{"login1", "a1-ib", "a2-ib", "z"}));
  EXPECT_EQ(*expand_node_list("r[1-2]n[01-02]"), (Names{"r1n01", "r1n02", "r2n01", "r2n02"}));
}

TEST(NodeList, RefusesWhatIsNone) {
  for (const char* list : {"", ",", "a,", ",a", "a,,b", "n[", "n[]", "n[1", "n1]", "n[1-]", "n[-1]",
                           "n[3-1]", "n[a-b]", "n[[1]]", "n[1,]x]", "n 1", "n[99999999999]"}) {
    EXPECT_FALSE(expand_node_list(list).ok()) << list;
  }
}

TEST(NodeList, IsBounded) {
  EXPECT_FALSE(expand_node_list("n[0-99999999]").ok());
  EXPECT_FALSE(expand_node_list("n[0-999][0-999]").ok());
  EXPECT_FALSE(expand_node_list("n[0-65535],m").ok());
  EXPECT_EQ(expand_node_list("n[0-65535]")->size(), kMaxNodes);
}

TEST(NodeList, CountsTasksPerNode) {
  EXPECT_EQ(*expand_task_counts("2(x3),1"), (std::vector<std::uint32_t>{2, 2, 2, 1}));
  EXPECT_EQ(*expand_task_counts("4"), std::vector<std::uint32_t>{4});
  for (const char* list : {"", "x", "2(", "2(x", "2(x)", "2(x3", "2(x99999999)", ","}) {
    EXPECT_FALSE(expand_task_counts(list).ok()) << list;
  }
}

}  // namespace

}  // namespace spillway::launch
