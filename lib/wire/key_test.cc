// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "wire/key.h"
#include "wire/packet_auth.h"

namespace spillway::wire {

namespace {

std::vector<std::uint8_t> run_of(std::uint8_t first, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

// RFC 5869, test case 1.
TEST(Key, IsDerivedAsTheRfcSays) {
  const std::vector<std::uint8_t> secret(22, 0x0B);
  const std::vector<std::uint8_t> info = run_of(0xF0, 10);
  std::array<std::uint8_t, 42> out{};
  ASSERT_TRUE(hkdf_sha256(secret, run_of(0, 13),
                          {reinterpret_cast<const char*>(info.data()), info.size()}, out)
                  .ok());
  const std::array<std::uint8_t, 42> expected = {
      0x3C, 0xB2, 0x5F, 0x25, 0xFA, 0xAC, 0xD5, 0x7A, 0x90, 0x43, 0x4F, 0x64, 0xD0, 0x36,
      0x2F, 0x2A, 0x2D, 0x2D, 0x0A, 0x90, 0xCF, 0x1A, 0x5A, 0x4C, 0x5D, 0xB0, 0x2D, 0x56,
      0xEC, 0xC4, 0xC5, 0xBF, 0x34, 0x00, 0x72, 0x08, 0xD5, 0xB8, 0x87, 0x18, 0x58, 0x65};
  EXPECT_EQ(out, expected);
}

TEST(Key, DependsOnSecretSaltAndLabel) {
  const auto derived = [](std::uint8_t secret, std::uint8_t salt, KeyLabel label) {
    RunKey key;
    EXPECT_TRUE(derive(run_of(secret, 32), run_of(salt, 16), label, key.bytes).ok());
    return key;
  };
  const RunKey key = derived(1, 2, KeyLabel::kRun);
  EXPECT_EQ(key, derived(1, 2, KeyLabel::kRun));
  EXPECT_NE(key, derived(2, 2, KeyLabel::kRun));
  EXPECT_NE(key, derived(1, 3, KeyLabel::kRun));
  EXPECT_NE(key, derived(1, 2, KeyLabel::kJob));
}

TEST(Key, MayBeWithoutSalt) {
  RunKey key;
  EXPECT_TRUE(derive(run_of(1, 16), {}, KeyLabel::kRun, key.bytes).ok());
  EXPECT_NE(key, RunKey());
}

// derive() takes no other labels, so these are all labels of Spillway.
TEST(KeyLabel, NoTwoAreEqualAndNoneBeginsWithAnother) {
  for (std::size_t one = 0; one < kKeyLabels.size(); ++one) {
    EXPECT_TRUE(kKeyLabels[one].starts_with("spillway "));
    // HKDF appends a counter to the label: a byte that no label may contain.
    EXPECT_TRUE(std::all_of(kKeyLabels[one].begin(), kKeyLabels[one].end(),
                            [](char letter) { return letter >= ' ' && letter <= '~'; }));
    for (std::size_t other = 0; other < kKeyLabels.size(); ++other) {
      EXPECT_TRUE(one == other || !kKeyLabels[one].starts_with(kKeyLabels[other]))
          << kKeyLabels[one] << " and " << kKeyLabels[other];
    }
  }
}

TEST(KeyLabel, EachGivesAnotherKey) {
  std::set<std::string> seen;
  for (std::size_t label = 0; label < kKeyLabels.size(); ++label) {
    RunKey key;
    ASSERT_TRUE(derive(run_of(1, 32), {}, static_cast<KeyLabel>(label), key.bytes).ok());
    seen.insert(std::string(key.bytes.begin(), key.bytes.end()));
  }
  EXPECT_EQ(seen.size(), kKeyLabels.size());
}

// A label is part of the protocol: ranks of two versions must derive the same keys.
TEST(KeyLabel, BelongsToItsName) {
  const auto label = [](KeyLabel name) { return kKeyLabels[static_cast<std::size_t>(name)]; };
  EXPECT_EQ(label(KeyLabel::kPackets), "spillway packets v4: epoch, from, to");
  EXPECT_EQ(label(KeyLabel::kSumParts), "spillway sums v1: parts");
  EXPECT_EQ(label(KeyLabel::kSumResults), "spillway sums v1: results");
  EXPECT_EQ(label(KeyLabel::kNumbers), "spillway job v2");
  EXPECT_EQ(label(KeyLabel::kJob), "spillway membership v1");
  EXPECT_EQ(label(KeyLabel::kTicket), "spillway job ticket v1");
  EXPECT_EQ(label(KeyLabel::kCommunicator), "spillway epoch v4: nonce, epoch, channel, members");
  EXPECT_EQ(label(KeyLabel::kPacketsOfSecret), "spillway packets v4: secret");
  EXPECT_EQ(label(KeyLabel::kPacketsOfMessage), "spillway packets of one message");
  EXPECT_EQ(label(KeyLabel::kRun), "spillway run key v2");
  EXPECT_EQ(label(KeyLabel::kRendezvousSecret), "spillway rendezvous v2 secret");
  EXPECT_EQ(label(KeyLabel::kRendezvousId), "spillway rendezvous v2 unique id");
  EXPECT_EQ(label(KeyLabel::kRendezvousProof), "spillway rendezvous v2 proof");
  EXPECT_EQ(label(KeyLabel::kRendezvousToHost), "spillway rendezvous v2 guest to host");
  EXPECT_EQ(label(KeyLabel::kRendezvousToJoiner), "spillway rendezvous v2 host to guest");
  EXPECT_EQ(label(KeyLabel::kJobName), "spillway job name v1");
  EXPECT_EQ(label(KeyLabel::kStreamConnects), "spillway stream v1: who connects");
  EXPECT_EQ(label(KeyLabel::kStreamAnswers), "spillway stream v1: who answers");
  EXPECT_EQ(label(KeyLabel::kMemberFromDialler), "spillway member v1 from the dialler");
  EXPECT_EQ(label(KeyLabel::kMemberToDialler), "spillway member v1 to the dialler");
}

// Outputs of keys and nonces over zeros. Two equal outputs come from the same key and nonce.
class Streams {
 public:
  void add(base::ByteView made) {
    ++count_;
    seen_.insert(std::string(made.begin(), made.end()));
  }
  // All sections that a packet of one direction can have.
  void add_packets(const PacketAuth& auth) {
    constexpr std::array<std::uint8_t, 32> kZeros{};
    for (const std::uint64_t number :
         {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 40}) {
      for (const std::uint8_t path : {std::uint8_t{0}, std::uint8_t{7}}) {
        const PacketName data{.number = number, .path = path};
        std::array<std::uint8_t, 32> made;
        auth.seal_head(data, {}, kZeros, made.data());
        add(made);
        for (std::uint32_t index = 0; index < 3; ++index) {
          std::array<Check, 1> check;
          auth.seal_segments(
              data, index,
              {.from = kZeros.data(), .to = made.data(), .length = 32, .last_length = 32}, check);
          add(made);
        }
        add(auth.check({.number = number, .path = path, .kind = PacketName::Kind::kControl}, kZeros)
                .bytes);
      }
    }
  }
  void add_key(const RunKey& parent, const KeyContext& context) {
    Key<48> key;
    ASSERT_TRUE(derive(parent, context, key.bytes).ok());
    add(key.bytes);
  }
  void expect_distinct() const { EXPECT_EQ(seen_.size(), count_); }

 private:
  std::size_t count_ = 0;
  std::set<std::string> seen_;
};

// Every communicator that five members can form in the order of their ids, and some in other
// orders, in every channel, epoch and epoch of packets, with every direction, section and kind of
// key.
TEST(KeyContext, NoTwoUsesOfAJobShareAKeyAndANonce) {
  using Members = std::vector<std::uint64_t>;
  std::vector<Members> parts = {{12, 11}, {15, 12}, {14, 12, 13, 11}};
  constexpr unsigned kMembers = 5;
  for (unsigned subset = 1; subset < 1U << kMembers; ++subset) {
    Members& part = parts.emplace_back();
    for (unsigned member = 0; member < kMembers; ++member) {
      if ((subset >> member & 1U) != 0) {
        part.push_back(11 + member);
      }
    }
  }
  constexpr std::array<std::uint64_t, 2> kPacketEpochs = {1, 2};
  constexpr std::uint16_t kNobody = UINT16_MAX;  // draws of sums
  RunKey job;
  job.bytes.fill(5);
  Streams streams;
  streams.add_key(job, {.use = KeyUse::kTicket});
  for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
    for (std::uint16_t channel = 0; channel < 3; ++channel) {
      for (const Members& members : parts) {
        RunKey run;
        // Nonces are random except in the founding epoch. There, and in this test, they are zero.
        ASSERT_TRUE(derive(job,
                           {.use = KeyUse::kCommunicator,
                            .epoch = epoch,
                            .channel = channel,
                            .members = members},
                           run.bytes)
                        .ok());
        streams.add_key(run, {.use = KeyUse::kNumbers});
        streams.add_key(run, {.use = KeyUse::kJob});
        for (const std::uint64_t packet_epoch : kPacketEpochs) {
          streams.add_key(run, {.use = KeyUse::kSumParts, .epoch = packet_epoch});
          streams.add_key(run, {.use = KeyUse::kSumResults, .epoch = packet_epoch});
          const auto add_course = [&](std::uint16_t from, std::uint16_t to) {
            streams.add_packets(PacketAuth::make(run,
                                                 {.epoch = packet_epoch, .from = from, .to = to},
                                                 Protection::kEncryption)
                                    .value());
          };
          add_course(kNobody, kNobody);
          for (std::uint16_t from = 0; from < members.size(); ++from) {
            for (std::uint16_t to = 0; to < members.size(); ++to) {
              if (from != to) {
                add_course(from, to);
              }
            }
          }
        }
      }
    }
  }
  streams.expect_distinct();
}

TEST(KeyContext, OfACommunicatorBindsAllThatItNames) {
  const std::vector<std::uint64_t> members = {11, 12};
  const std::vector<std::uint64_t> longer = {11, 12, 0};
  const KeyContext context{
      .use = KeyUse::kCommunicator, .epoch = 1, .channel = 2, .nonce = {3}, .members = members};
  std::vector<KeyContext> others(5, context);
  others[1].epoch = 2;
  others[2].channel = 1;
  others[3].nonce = {4};
  others[4].members = longer;  // HMAC would ignore zeros after a salt
  RunKey job;
  job.bytes.fill(5);
  Streams streams;
  for (const KeyContext& other : others) {
    streams.add_key(job, other);
  }
  job.bytes.fill(6);
  streams.add_key(job, context);
  streams.expect_distinct();
}

}  // namespace

namespace {

// True if the kernel leaves the page with this address out of core dumps (flag "dd").
bool is_left_out_of_dumps(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream maps("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_here = begin <= address && address < end;
    } else if (is_here && line.starts_with("VmFlags:")) {
      return line.find(" dd") != std::string::npos;
    }
  }
  return false;
}

struct Expanded : InKeyMemory {
  std::uint8_t rounds[1000] = {};
};

TEST(KeyMemory, IsLeftOutOfCoreDumps) {
  const auto ordinary = std::make_unique<int>();
  ASSERT_FALSE(is_left_out_of_dumps(ordinary.get()));
  const RunKey key;
  EXPECT_TRUE(is_left_out_of_dumps(key.bytes.data())) << "on the stack otherwise";
  const RunKey copy = key;
  EXPECT_TRUE(is_left_out_of_dumps(copy.bytes.data()));
  const std::unique_ptr<Expanded> expanded(new Expanded);
  EXPECT_TRUE(is_left_out_of_dumps(expanded.get()));
  const KeyBytes secret(70'000);
  EXPECT_TRUE(is_left_out_of_dumps(secret.data()));
}

TEST(KeyMemory, IsAlignedApartAndEmptyAgain) {
  std::set<std::uintptr_t> seen;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<RunKey>> keys;
    std::set<std::uintptr_t> now;
    for (int i = 0; i < 3000; ++i) {
      keys.push_back(std::make_unique<RunKey>());
      const RunKey& key = *keys.back();
      EXPECT_EQ(key, RunKey()) << "something is left of another key";
      keys.back()->bytes.fill(0xA5);
      const auto address = reinterpret_cast<std::uintptr_t>(key.bytes.data());
      EXPECT_EQ(address % kKeyAlignment, 0U);
      EXPECT_TRUE(now.insert(address).second);
    }
    seen.insert(now.begin(), now.end());
  }
  EXPECT_LT(seen.size(), 6000U) << "slots are not used again";
}

TEST(KeyMemory, TakesAnySize) {
  for (const std::size_t bytes : {1, 63, 64, 65, 4096, 65'535, 65'536, 65'537, 1'000'000}) {
    auto* const memory = static_cast<std::uint8_t*>(allocate_key_memory(bytes));
    EXPECT_TRUE(std::all_of(memory, memory + bytes, [](std::uint8_t byte) { return byte == 0; }));
    std::fill_n(memory, bytes, 0xFF);
    free_key_memory(memory, bytes);
  }
}

}  // namespace

}  // namespace spillway::wire
