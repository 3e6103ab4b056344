// SPDX-License-Identifier: Apache-2.0
#include "lab/state_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

namespace spillway::lab {
namespace {

namespace fs = std::filesystem;

class StateDirectoryTest : public testing::Test {
 protected:
  StateDirectoryTest() {
    std::string folder = testing::TempDir() + "lab_state_XXXXXX";
    folder_ = ::mkdtemp(folder.data());
  }
  ~StateDirectoryTest() override { fs::remove_all(folder_); }

  fs::path root() const { return folder_ / "lab"; }
  fs::path folder_;
};

LabRecord sample_record(const StateDirectory& state) {
  LabRecord record;
  record.name = "one";
  record.id = state.id();
  record.isolation = Isolation::kUser;
  record.supervisor = ::getpid();
  record.supervisor_start = process_start(::getpid());
  record.since = 1234;
  record.hosts = 1;
  record.rate = 1'000'000;
  return record;
}

TEST_F(StateDirectoryTest, ALabIsFoundWhileItsLockIsHeld) {
  const base::Result<StateDirectory> state = StateDirectory::create(root(), "one");
  ASSERT_TRUE(state.ok()) << state.status().message();
  ASSERT_TRUE(state->write(sample_record(*state)).ok());
  const base::Result<std::vector<LabRecord>> labs = live_labs(root());
  ASSERT_TRUE(labs.ok()) << labs.status().message();
  ASSERT_EQ(labs->size(), 1U);
  const LabRecord& lab = labs->front();
  EXPECT_EQ(lab.name, "one");
  EXPECT_EQ(lab.id, state->id());
  EXPECT_EQ(lab.isolation, Isolation::kUser);
  EXPECT_EQ(lab.supervisor, ::getpid());
  EXPECT_EQ(lab.since, 1234);
  EXPECT_EQ(lab.rate, 1'000'000);
}

TEST_F(StateDirectoryTest, HostsComeBackWithTheirVariables) {
  const StateDirectory state = StateDirectory::create(root(), "one").value();
  const HostRecord host{"host0", "10.77.0.1", 9, {"A=1", "B=two\nlines", "C="}};
  ASSERT_TRUE(state.write(0, host).ok());
  const base::Result<std::vector<HostRecord>> hosts = hosts_of(root(), sample_record(state));
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ(hosts->front().name, "host0");
  EXPECT_EQ(hosts->front().address, "10.77.0.1");
  EXPECT_EQ(hosts->front().namespace_fd, 9);
  EXPECT_EQ(hosts->front().variables, host.variables);
}

TEST_F(StateDirectoryTest, ADeadLabIsReclaimed) {
  std::optional<StateDirectory> state = StateDirectory::create(root(), "one").value();
  ASSERT_TRUE(state->write(sample_record(*state)).ok());
  const fs::path path = state->path();
  state.reset();  // as if its processes had died: the lock is free, the files remain
  ASSERT_TRUE(fs::exists(path));
  EXPECT_TRUE(live_labs(root())->empty());
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(StateDirectoryTest, TwoLabsCannotShareAName) {
  const base::Result<StateDirectory> first = StateDirectory::create(root(), "one");
  ASSERT_TRUE(first.ok());
  const base::Result<StateDirectory> second = StateDirectory::create(root(), "one");
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("lab down --name one"), std::string::npos);
  EXPECT_TRUE(StateDirectory::create(root(), "two").ok());
}

TEST_F(StateDirectoryTest, NamesThatLeaveTheRootAreRefused) {
  for (const char* name : {"", ".", "..", "../x", "a/b", "a b", ".lock"}) {
    EXPECT_FALSE(StateDirectory::create(root(), name).ok()) << name;
  }
}

TEST_F(StateDirectoryTest, ARootThatOthersMayWriteToIsRefused) {
  ASSERT_TRUE(fs::create_directory(root()));
  ASSERT_EQ(::chmod(root().c_str(), 0777), 0);
  const base::Result<StateDirectory> state = StateDirectory::create(root(), "one");
  ASSERT_FALSE(state.ok());
  EXPECT_NE(state.status().message().find("does not belong"), std::string::npos);
}

TEST(ProcessStart, NamesAProcess) {
  EXPECT_GT(process_start(::getpid()), 0U);
  EXPECT_EQ(process_start(::getpid()), process_start(::getpid()));
  EXPECT_GE(process_start(::getpid()), process_start(1));
  EXPECT_EQ(process_start(0), 0U);
}

}  // namespace
}  // namespace spillway::lab
