// SPDX-License-Identifier: Apache-2.0
#include "base/own_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

namespace spillway::base {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLimit = 100;
constexpr uid_t kSomebody = 65'534;

class OwnFile : public testing::Test {
 protected:
  OwnFile() {
    std::string name = testing::TempDir() + "own_file_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~OwnFile() override { fs::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

unsigned mode_of(const std::string& path) {
  struct stat about {};
  return ::lstat(path.c_str(), &about) == 0 ? about.st_mode & 07777U : 0U;
}

std::string refusal(const std::string& path) {
  const Result<std::string> read = read_own_file(path, kLimit);
  return read.ok() ? "" : read.status().message();
}

TEST_F(OwnFile, IsReplacedWholeAndIsItsOwnersAlone) {
  ASSERT_TRUE(replace_file(file("ticket"), "one").ok());
  ASSERT_TRUE(replace_file(file("ticket"), "two").ok());
  EXPECT_EQ(*read_own_file(file("ticket"), kLimit), "two");
  EXPECT_EQ(mode_of(file("ticket")), 0600U);
  ASSERT_TRUE(replace_file(file("metrics"), "three", Readers::kEveryone).ok());
  EXPECT_EQ(mode_of(file("metrics")), 0644U);
  EXPECT_EQ(files(), 2U);
}

TEST_F(OwnFile, ALinkInItsPlaceIsReplacedAndNotFollowed) {
  std::ofstream(file("victim")) << "kept";
  ASSERT_EQ(::symlink("victim", file("ticket").c_str()), 0);
  ASSERT_TRUE(replace_file(file("ticket"), "new").ok());
  EXPECT_EQ(text_of(file("victim")), "kept");
  EXPECT_FALSE(fs::is_symlink(file("ticket")));
}

TEST_F(OwnFile, AReplacementThatFailsLeavesNothingBehind) {
  fs::create_directory(file("taken"));
  EXPECT_NE(replace_file(file("taken"), "text").message().find(file("taken")), std::string::npos);
  EXPECT_FALSE(replace_file("/nowhere/at/all", "text").ok());
  EXPECT_EQ(files(), 1U);
}

TEST_F(OwnFile, IsNotReadWhereOthersMayUseIt) {
  ASSERT_TRUE(replace_file(file("ticket"), "text").ok());
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0666}) {
    ASSERT_EQ(::chmod(file("ticket").c_str(), mode), 0);
    EXPECT_NE(refusal(file("ticket")).find("chmod 600"), std::string::npos) << mode;
  }
  ASSERT_EQ(::chmod(file("ticket").c_str(), 0400), 0);
  EXPECT_EQ(refusal(file("ticket")), "");
}

TEST_F(OwnFile, IsNotReadWhereAnotherUserOwnsIt) {
  ASSERT_TRUE(replace_file(file("ticket"), "text").ok());
  struct stat about {};
  ASSERT_EQ(::stat(file("ticket").c_str(), &about), 0);
  about.st_uid = kSomebody;
  EXPECT_NE(check_is_own(about, "it").message().find("belongs to user 65534"), std::string::npos);
  if (::chown(file("ticket").c_str(), kSomebody, kSomebody) != 0) {
    GTEST_SKIP() << "only root gives files away";
  }
  EXPECT_NE(refusal(file("ticket")).find("belongs to user 65534"), std::string::npos);
}

TEST_F(OwnFile, IsNotReadThroughALinkOrFromAPipeOrBeyondTheLimit) {
  ASSERT_TRUE(replace_file(file("long"), std::string(kLimit + 1, 'x')).ok());
  EXPECT_NE(refusal(file("long")).find("more than 100 bytes"), std::string::npos);
  ASSERT_TRUE(replace_file(file("fits"), std::string(kLimit, 'x')).ok());
  EXPECT_EQ(refusal(file("fits")), "");
  ASSERT_EQ(::symlink("fits", file("link").c_str()), 0);
  EXPECT_NE(refusal(file("link")), "");
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal(file("pipe")).find("not a regular file"), std::string::npos);
}

TEST_F(OwnFile, AFolderIsMadeForItsOwnerAndOneOfOthersIsRefused) {
  ASSERT_TRUE(prepare_own_folder(file("a/b")).ok());
  EXPECT_EQ(mode_of(file("a/b")), 0700U);
  EXPECT_TRUE(prepare_own_folder(file("a/b")).ok());
  ASSERT_EQ(::chmod(file("a/b").c_str(), 0770), 0);
  EXPECT_NE(prepare_own_folder(file("a/b")).message().find("does not belong"), std::string::npos);
  ASSERT_EQ(::symlink("a", file("link").c_str()), 0);
  EXPECT_FALSE(prepare_own_folder(file("link")).ok());
  std::ofstream(file("file")) << "text";
  EXPECT_FALSE(prepare_own_folder(file("file")).ok());
}

// ------------------------------------------------------------------ files that grow

// Opens, writes and closes; returns the error, if any.
std::string write_to(const std::string& path, Opening opening, std::string_view text,
                     Readers readers = Readers::kOwner) {
  const int fd = open_own_file(path.c_str(), opening, readers);
  if (fd < 0) {
    return not_opened(path, errno).message();
  }
  const bool is_written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return is_written ? "" : "not written";
}

TEST_F(OwnFile, IsOpenedToGrowToBeEmptiedOrAsItIs) {
  EXPECT_EQ(write_to(file("log"), Opening::kAppend, "one"), "");
  EXPECT_EQ(write_to(file("log"), Opening::kAppend, "two"), "");
  EXPECT_EQ(text_of(file("log")), "onetwo");
  EXPECT_EQ(write_to(file("log"), Opening::kKeep, "ONE"), "");
  EXPECT_EQ(text_of(file("log")), "ONEtwo");
  EXPECT_EQ(write_to(file("log"), Opening::kTruncate, "3"), "");
  EXPECT_EQ(text_of(file("log")), "3");
  EXPECT_TRUE(write_own_file(file("log"), "four", Readers::kEveryone).ok());
  EXPECT_EQ(text_of(file("log")), "four");
  EXPECT_NE(write_to("/nowhere/at/all", Opening::kAppend, "").find("cannot write /nowhere/at/all"),
            std::string::npos);
  EXPECT_NE(write_to(folder_, Opening::kAppend, ""), "");
}

TEST_F(OwnFile, ThatIsOpenedIsItsOwnersAloneUnlessToldOtherwise) {
  const mode_t before = ::umask(0);
  EXPECT_EQ(write_to(file("log"), Opening::kAppend, "x"), "");
  EXPECT_EQ(write_to(file("page"), Opening::kTruncate, "x", Readers::kEveryone), "");
  ::umask(before);
  EXPECT_EQ(mode_of(file("log")), 0600U);
  EXPECT_EQ(mode_of(file("page")), 0644U);
  ASSERT_EQ(::chmod(file("log").c_str(), 0640), 0);
  EXPECT_EQ(write_to(file("log"), Opening::kAppend, "x"), "");
  EXPECT_EQ(mode_of(file("log")), 0640U) << "what its owner made of it stays";
}

TEST_F(OwnFile, IsOpenedThroughLinksOfOnesOwnAndIntoDevicesAndPipes) {
  ASSERT_EQ(::symlink("target", file("link").c_str()), 0);
  EXPECT_EQ(write_to(file("link"), Opening::kTruncate, "through"), "")
      << "to what is not there yet";
  EXPECT_EQ(write_to(file("link"), Opening::kAppend, " it"), "");
  EXPECT_EQ(text_of(file("target")), "through it");
  EXPECT_EQ(write_to("/dev/null", Opening::kTruncate, "gone"), "");
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_EQ(write_to("/dev/fd/" + std::to_string(ends[1]), Opening::kTruncate, "pipe"), "");
  std::array<char, 5> text{};
  EXPECT_EQ(::read(ends[0], text.data(), 4), 4);
  EXPECT_STREQ(text.data(), "pipe");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(OwnFile, ANamedPipeIsOpenedWhenItsReaderComes) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = text_of(file("pipe")); });
  EXPECT_EQ(write_to(file("pipe"), Opening::kAppend, "text"), "");
  reader.join();
  EXPECT_EQ(got, "text");
}

TEST_F(OwnFile, IsNotOpenedByASecondName) {
  std::ofstream(file("precious")) << "kept";
  ASSERT_EQ(::link(file("precious").c_str(), file("trace").c_str()), 0);
  EXPECT_NE(write_to(file("trace"), Opening::kTruncate, "x").find("hard links"), std::string::npos);
  EXPECT_EQ(text_of(file("precious")), "kept");
}

class Trap : public OwnFile, public testing::WithParamInterface<Opening> {
 protected:
  // True if this process may give `name` to another user; its folder stays this user's.
  bool give_away(const std::string& name) const {
    return ::lchown(file(name).c_str(), kSomebody, kSomebody) == 0;
  }
  void expect_refusal(const std::string& name) const {
    EXPECT_NE(write_to(file(name), GetParam(), "secret").find("belongs to user 65534"),
              std::string::npos);
  }
};

TEST_P(Trap, ALinkOfAnotherUsersIsNotFollowed) {
  std::ofstream(file("victim")) << "kept";
  for (const char* target : {"victim", "missing"}) {
    ASSERT_EQ(::symlink(target, file("log").c_str()), 0);
    if (!give_away("log")) {
      GTEST_SKIP() << "only root gives files away";
    }
    expect_refusal("log");
    fs::remove(file("log"));
  }
  EXPECT_EQ(text_of(file("victim")), "kept");
  EXPECT_FALSE(fs::exists(file("missing")));
}

TEST_P(Trap, AFileOrPipeOfAnotherUsersGetsNothing) {
  std::ofstream(file("log")) << "theirs";
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0666), 0);
  if (!give_away("log") || !give_away("pipe")) {
    GTEST_SKIP() << "only root gives files away";
  }
  expect_refusal("log");
  EXPECT_EQ(text_of(file("log")), "theirs");
  expect_refusal("pipe");  // without waiting for a reader
}

TEST_P(Trap, TheFoldersOwnerMayPutThereWhatHeLikes) {
  std::ofstream(file("log")) << "";
  if (!give_away("log") || ::chown(folder_.c_str(), kSomebody, kSomebody) != 0) {
    GTEST_SKIP() << "only root gives files away";
  }
  EXPECT_EQ(write_to(file("log"), GetParam(), "text"), "");
  EXPECT_EQ(text_of(file("log")), "text");
}

INSTANTIATE_TEST_SUITE_P(EveryOpening, Trap,
                         testing::Values(Opening::kAppend, Opening::kTruncate, Opening::kKeep));

TEST_F(OwnFile, TheRuntimeFolderIsTheUsers) {
  const std::string folder = runtime_folder({{"XDG_RUNTIME_DIR", folder_}});
  EXPECT_TRUE(folder == folder_ + "/spillway" || (::geteuid() == 0 && folder == "/run/spillway"))
      << folder;
}

}  // namespace
}  // namespace spillway::base
