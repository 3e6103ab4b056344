// SPDX-License-Identifier: Apache-2.0
#include "launch/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "net/system_call.h"

namespace spillway::launch {
namespace {

constexpr const char* kText = "sixteen or more bytes";

// "..." or "error: ..."
std::string outcome(const base::Environment& environment, std::string_view given = {}) {
  const base::Result<Secret> secret = secret_from(environment, Secret(given));
  return secret.ok() ? std::string(secret->bytes().begin(), secret->bytes().end())
                     : "error: " + secret.status().message();
}

std::string from_file(const std::string& where) {
  return outcome({{"SPILLWAY_SECRET_FILE", where}});
}

class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    std::string name = "/tmp/spillway-secret-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~SecretFile() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& content, mode_t mode = 0600) const {
    const std::string path = folder_ + "/secret";
    std::ofstream(path) << content;
    ::chmod(path.c_str(), mode);
    return path;
  }

  std::string folder_;
};

TEST(Secret, ComesFromTheArgumentBeforeTheVariable) {
  EXPECT_EQ(outcome({}), "");
  EXPECT_EQ(outcome({{"SPILLWAY_SECRET", kText}}), kText);
  EXPECT_EQ(outcome({{"SPILLWAY_SECRET", kText}}, "given as an argument"), "given as an argument");
  EXPECT_EQ(outcome({}, "too short"),
            "error: the job's secret has 9 bytes: it must have 16 to 4096");
}

TEST_F(SecretFile, IsReadLessTheNewlineAtItsEnd) {
  EXPECT_EQ(from_file(write(std::string(kText) + "\n")), kText);
  EXPECT_EQ(from_file(write(std::string(kText) + "\r\n")), kText);
  EXPECT_EQ(from_file(write("with a newline\n inside")), "with a newline\n inside");
}

TEST_F(SecretFile, MustBeLongEnoughAndNotTooLong) {
  EXPECT_NE(from_file(write("fifteen bytes!!\n")).find("has 15 bytes: it must have 16 to 4096"),
            std::string::npos);
  EXPECT_EQ(from_file(write(std::string(4096, 'x') + "\n")).size(), 4096U);
  EXPECT_NE(from_file(write(std::string(5000, 'x'))).find("too many bytes"), std::string::npos);
}

TEST_F(SecretFile, ThatOthersCanReadIsRefused) {
  for (const mode_t mode : {0644, 0640, 0604, 0660}) {
    const std::string said = from_file(write(kText, mode));
    EXPECT_NE(said.find("chmod 600"), std::string::npos) << said;
    EXPECT_EQ(said.find(kText), std::string::npos);
  }
  EXPECT_EQ(from_file(write(kText, 0400)), kText);
}

TEST_F(SecretFile, ThatAnotherUserOwnsIsRefused) {
  const std::string path = write(kText);
  if (::chown(path.c_str(), 65'534, 65'534) != 0) {
    GTEST_SKIP() << "only root gives files away";
  }
  const std::string said = from_file(path);
  EXPECT_NE(said.find("belongs to user 65534"), std::string::npos) << said;
}

TEST_F(SecretFile, GoesNotTogetherWithTheOtherVariable) {
  EXPECT_NE(outcome({{"SPILLWAY_SECRET", kText}, {"SPILLWAY_SECRET_FILE", write(kText)}})
                .find("are both set"),
            std::string::npos);
}

TEST_F(SecretFile, ThatIsNotThereIsNamed) {
  EXPECT_NE(from_file("/nowhere/secret").find("/nowhere/secret"), std::string::npos);
  EXPECT_NE(from_file(folder_).find("error: "), std::string::npos);
  EXPECT_NE(from_file("987654").find("descriptor 987654"), std::string::npos);
}

TEST_F(SecretFile, MayBeAPipeWhichIsReadOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const net::UniqueFd reading(ends[0]);
  ASSERT_EQ(::write(ends[1], kText, 21), 21);
  ::close(ends[1]);
  EXPECT_EQ(from_file(fmt::to_string(ends[0])), kText);
  EXPECT_EQ(from_file(fmt::to_string(ends[0])), kText) << "for the second communicator";
  EXPECT_EQ(from_file(fmt::format("/dev/fd/{}", ends[0])), kText);
}

TEST_F(SecretFile, MayBeADescriptorOfAFileOrOfMemory) {
  const net::UniqueFd file(::open(write(kText).c_str(), O_RDONLY));
  EXPECT_EQ(from_file(fmt::to_string(file.get())), kText);
  EXPECT_EQ(from_file(fmt::to_string(file.get())), kText);
  const net::UniqueFd open_to_all(::open(write(kText, 0644).c_str(), O_RDONLY));
  EXPECT_NE(from_file(fmt::to_string(open_to_all.get())).find("chmod 600"), std::string::npos);
  const net::UniqueFd memory(::memfd_create("secret", 0));
  ASSERT_EQ(::write(memory.get(), kText, 21), 21);
  EXPECT_EQ(from_file(fmt::to_string(memory.get())), kText);
}

TEST(Secret, IsGoneWhenWiped) {
  Secret secret{std::string_view(kText)};
  EXPECT_FALSE(secret.empty());
  secret.wipe();
  EXPECT_TRUE(secret.empty());
}

}  // namespace
}  // namespace spillway::launch
