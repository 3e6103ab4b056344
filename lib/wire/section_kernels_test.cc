// SPDX-License-Identifier: Apache-2.0
#include "wire/section_kernels.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"

namespace spillway::wire {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kMostBytes = 1100;
constexpr std::size_t kRunBytes = SectionKeys::kPowers * kAesBlock;
constexpr std::uint8_t kUntouched = 0xEE;

Bytes drawn_bytes(std::size_t size, std::uint64_t seed) {
  base::RandomSequence random(seed);
  Bytes bytes(size);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random.next_word());
  }
  return bytes;
}

// Random-looking bytes, without drawing each one anew.
Bytes some_bytes(std::size_t size, std::uint64_t seed) {
  static const Bytes pool = drawn_bytes(16384, 0);
  const auto first = pool.begin() + static_cast<std::ptrdiff_t>(seed * 97 % 8192);
  return Bytes(first, first + static_cast<std::ptrdiff_t>(size));
}

AesBlock block_of(const char* hex) {
  AesBlock block;
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] = static_cast<std::uint8_t>(std::stoul(std::string(hex + 2 * i, 2), nullptr, 16));
  }
  return block;
}

Key<48> key_of(std::uint64_t seed) {
  Key<48> key;
  const Bytes bytes = drawn_bytes(key.bytes.size(), seed);
  std::copy(bytes.begin(), bytes.end(), key.bytes.begin());
  return key;
}

SectionKeys keys_of(std::uint64_t seed, bool encrypts) {
  SectionKeys keys;
  expand(key_of(seed), encrypts, keys);
  return keys;
}

// Encrypts with OpenSSL, under the 16 bytes at `key`.
Bytes openssl_aes(const EVP_CIPHER* cipher, const std::uint8_t* key, const AesBlock& counter,
                  const Bytes& text) {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context(
      EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  Bytes out(text.size() + kAesBlock);
  int size = 0;
  EXPECT_EQ(EVP_EncryptInit_ex(context.get(), cipher, nullptr, key, counter.data()), 1);
  EVP_CIPHER_CTX_set_padding(context.get(), 0);
  EXPECT_EQ(EVP_EncryptUpdate(context.get(), out.data(), &size, text.data(),
                              static_cast<int>(text.size())),
            1);
  out.resize(static_cast<std::size_t>(size));
  return out;
}

// One section, with guard room around the output.
struct Trial {
  Bytes prefix;
  Bytes from;
  AesBlock nonce;

  Trial(std::size_t prefix_bytes, std::size_t bytes, std::uint64_t seed)
      : prefix(some_bytes(prefix_bytes, seed)), from(some_bytes(bytes, seed + 1)) {
    const Bytes drawn = some_bytes(kAesBlock, seed + 2);
    std::copy(drawn.begin(), drawn.end(), nonce.begin());
  }

  Section section(const std::uint8_t* source, std::uint8_t* to) const {
    return {.prefix = prefix.data(),
            .prefix_bytes = prefix.size(),
            .from = source,
            .to = to,
            .bytes = from.size(),
            .nonce = nonce};
  }
};

struct Outcome {
  Bytes bytes;
  std::uint64_t tag = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

using Kernel = decltype(SectionKernels::seal);

Outcome moved(Kernel kernel, const SectionKeys& keys, const Trial& trial, const Bytes& source) {
  Outcome outcome{Bytes(source.size() + 1, kUntouched)};
  const Section section = trial.section(source.data(), outcome.bytes.data());
  kernel(keys, &section, 1, &outcome.tag);
  EXPECT_EQ(outcome.bytes.back(), kUntouched);
  outcome.bytes.pop_back();
  return outcome;
}

Outcome in_place(Kernel kernel, const SectionKeys& keys, const Trial& trial, const Bytes& source) {
  Outcome outcome{source};
  outcome.bytes.push_back(kUntouched);
  const Section section = trial.section(outcome.bytes.data(), outcome.bytes.data());
  kernel(keys, &section, 1, &outcome.tag);
  EXPECT_EQ(outcome.bytes.back(), kUntouched);
  outcome.bytes.pop_back();
  return outcome;
}

std::uint64_t looked_at(Kernel kernel, const SectionKeys& keys, const Trial& trial,
                        const Bytes& source) {
  std::uint64_t tag = 0;
  const Section section = trial.section(source.data(), nullptr);
  kernel(keys, &section, 1, &tag);
  return tag;
}

// ------------------------------------------------------------------ the parts

// RFC 8452, section 7 and appendix A.
TEST(Polyval, IsThatOfTheRfc) {
  const auto element = [](const char* hex) { return polyval_element(block_of(hex).data()); };
  EXPECT_EQ(polyval_product(element("66e94bd4ef8a2c3b884cfa59ca342b2e"),
                            element("ff000000000000000000000000000000")),
            element("ebe563401e7e91ea3ad6426b8140c394"));
  const PolyvalElement key = element("25629347589242761d31f826ba4b757b");
  const PolyvalElement first = polyval_product(element("4f4f95668c83dfb6401762bb2d01a262"), key);
  EXPECT_EQ(polyval_product(first ^ element("d1a24ddd2721d006bbe45f20d3c9f362"), key),
            element("f7a3b47b846119fae5b7866cf5e5b77e"));
}

// Sets every bit: partial sums are then largest.
TEST(Polyval, MultipliesWithoutCarries) {
  const PolyvalElement ones = {~std::uint64_t{0}, ~std::uint64_t{0}};
  PolyvalElement sum;
  for (unsigned bit = 0; bit < 128; ++bit) {
    const PolyvalElement power = bit < 64 ? PolyvalElement{std::uint64_t{1} << bit, 0}
                                          : PolyvalElement{0, std::uint64_t{1} << (bit - 64)};
    sum = sum ^ polyval_product(ones, power);
  }
  EXPECT_EQ(polyval_product(ones, ones), sum);
}

TEST(SlicedAes, IsOpenssls) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Bytes key = drawn_bytes(kAesBlock, 100 + seed);
    const Bytes text = drawn_bytes(kAesSideBySide * kAesBlock, 200 + seed);
    AesRounds rounds;
    expand_aes(key.data(), rounds);
    AesBlocks blocks;
    for (std::size_t i = 0; i < text.size(); ++i) {
      blocks[i / kAesBlock][i % kAesBlock] = text[i];
    }
    encrypt_aes(rounds, blocks);
    Bytes encrypted;
    for (const AesBlock& block : blocks) {
      encrypted.insert(encrypted.end(), block.begin(), block.end());
    }
    EXPECT_EQ(encrypted, openssl_aes(EVP_aes_128_ecb(), key.data(), {}, text));
  }
}

// ------------------------------------------------------------------ every table

class SectionKernelsTest : public testing::TestWithParam<const SectionKernels*> {
 protected:
  const SectionKernels& kernels() const { return *GetParam(); }
};

// Hashes the RFC's blocks, then encrypts with OpenSSL.
TEST_P(SectionKernelsTest, TagsAsDefined) {
  Key<48> key = key_of(1);
  const AesBlock hash_key = block_of("25629347589242761d31f826ba4b757b");
  std::copy(hash_key.begin(), hash_key.end(), key.bytes.begin());
  SectionKeys keys;
  expand(key, false, keys);
  Trial trial(16, 16, 2);
  const AesBlock first = block_of("4f4f95668c83dfb6401762bb2d01a262");
  const AesBlock second = block_of("d1a24ddd2721d006bbe45f20d3c9f362");
  trial.prefix.assign(first.begin(), first.end());
  trial.from.assign(second.begin(), second.end());
  const AesBlock hash = block_of("f7a3b47b846119fae5b7866cf5e5b77e");
  Bytes input(kAesBlock);
  for (std::size_t i = 0; i < kAesBlock; ++i) {
    input[i] = hash[i] ^ trial.nonce[i];
  }
  const Bytes expected = openssl_aes(EVP_aes_128_ecb(), key.bytes.data() + 16, {}, input);
  EXPECT_EQ(looked_at(kernels().seal, keys, trial, trial.from),
            base::load_le<std::uint64_t>(expected.data()));
}

TEST_P(SectionKernelsTest, EncryptsAsDefined) {
  const Key<48> key = key_of(3);
  SectionKeys keys;
  expand(key, true, keys);
  for (const std::size_t bytes : {1, 15, 16, 63, 64, 300, 512, 1000}) {
    const Trial trial(48, bytes, bytes);
    // OpenSSL counts up in the last byte, we in the first of the last four, so go block by block.
    Bytes expected;
    for (std::size_t at = 0; at < bytes; at += kAesBlock) {
      AesBlock counter = trial.nonce;
      base::store_le(counter.data() + 12, static_cast<std::uint32_t>(at / kAesBlock));
      const Bytes text(trial.from.begin() + at,
                       trial.from.begin() + std::min(bytes, at + kAesBlock));
      const Bytes block = openssl_aes(EVP_aes_128_ctr(), key.bytes.data() + 32, counter, text);
      expected.insert(expected.end(), block.begin(), block.end());
    }
    EXPECT_EQ(moved(kernels().seal, keys, trial, trial.from).bytes, expected) << bytes;
  }
}

// All sizes up to kMostBytes, and those around the boundaries of runs.
std::vector<std::size_t> tried_sizes() {
  std::vector<std::size_t> sizes(kMostBytes + 1);
  std::iota(sizes.begin(), sizes.end(), std::size_t{0});
  for (std::size_t runs = 1; runs <= 3; ++runs) {
    for (const int off : {-65, -64, -17, -16, -1, 0, 1, 15, 16, 17, 64, 300}) {
      sizes.push_back(runs * kRunBytes + static_cast<std::size_t>(off));
    }
  }
  return sizes;
}

TEST_P(SectionKernelsTest, DoesAsTheOracleAndBack) {
  const SectionKernels& oracle = *all_section_kernels().front();
  base::RandomSequence random(4);
  for (const bool encrypts : {false, true}) {
    const SectionKeys keys = keys_of(5, encrypts);
    for (const std::size_t bytes : tried_sizes()) {
      const Trial trial(16 * random.next_below(bytes % 50 == 0 ? 150 : 5), bytes, bytes);
      const Outcome expected = moved(oracle.seal, keys, trial, trial.from);
      ASSERT_EQ(moved(kernels().seal, keys, trial, trial.from), expected) << bytes;
      ASSERT_EQ(in_place(kernels().seal, keys, trial, trial.from), expected) << bytes;
      ASSERT_EQ(looked_at(kernels().seal, keys, trial, expected.bytes), expected.tag) << bytes;
      const Outcome back = {trial.from, expected.tag};
      ASSERT_EQ(moved(kernels().open, keys, trial, expected.bytes), back) << bytes;
      ASSERT_EQ(in_place(kernels().open, keys, trial, expected.bytes), back) << bytes;
      ASSERT_EQ(looked_at(kernels().open, keys, trial, expected.bytes), expected.tag) << bytes;
    }
  }
}

TEST_P(SectionKernelsTest, DoesSeveralAsOneByOne) {
  for (const bool encrypts : {false, true}) {
    const SectionKeys keys = keys_of(6, encrypts);
    const std::vector<Trial> trials = {{48, 104, 1}, {0, 512, 2}, {0, 511, 3}, {1040, 700, 4}};
    for (std::size_t count = 1; count <= SectionKernels::kAtOnce; ++count) {
      std::vector<Bytes> written;
      std::vector<Section> sections;
      for (std::size_t i = 0; i < count; ++i) {
        written.emplace_back(trials[i].from.size());
        sections.push_back(trials[i].section(trials[i].from.data(), written[i].data()));
      }
      std::vector<std::uint64_t> tags(count + 1, 7);
      kernels().seal(keys, sections.data(), count, tags.data());
      EXPECT_EQ(tags.back(), 7U);
      for (std::size_t i = 0; i < count; ++i) {
        const Outcome alone = moved(kernels().seal, keys, trials[i], trials[i].from);
        EXPECT_EQ((Outcome{written[i], tags[i]}), alone);
      }
    }
  }
}

// Also bits of the nonce, and zeros appended where padding would go.
TEST_P(SectionKernelsTest, ABitMoreOrLessChangesTheTag) {
  const SectionKeys keys = keys_of(7, false);
  Trial trial(48, 90, 8);
  const std::uint64_t tag = looked_at(kernels().open, keys, trial, trial.from);
  const auto differs = [&](std::uint8_t* bytes, std::size_t count) {
    for (std::size_t bit = 0; bit < 8 * count; ++bit) {
      const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
      bytes[bit / 8] ^= mask;
      EXPECT_NE(looked_at(kernels().open, keys, trial, trial.from), tag) << bit;
      bytes[bit / 8] ^= mask;
    }
  };
  differs(trial.prefix.data(), trial.prefix.size());
  differs(trial.from.data(), trial.from.size());
  differs(trial.nonce.data(), trial.nonce.size());
}

TEST_P(SectionKernelsTest, DependsOnEachKey) {
  const Trial trial(48, 90, 9);
  const auto sealed = [&](std::size_t changed) {
    Key<48> key = key_of(10);
    if (changed < key.bytes.size()) {
      key.bytes[changed] ^= 1;
    }
    SectionKeys keys;
    expand(key, true, keys);
    return moved(kernels().seal, keys, trial, trial.from);
  };
  const Outcome unchanged = sealed(48);
  for (const std::size_t changed : {0, 15, 16, 31}) {
    EXPECT_NE(sealed(changed).tag, unchanged.tag);
    EXPECT_EQ(sealed(changed).bytes, unchanged.bytes);
  }
  EXPECT_NE(sealed(32).bytes, unchanged.bytes);
  EXPECT_NE(sealed(47).bytes, unchanged.bytes);
}

INSTANTIATE_TEST_SUITE_P(, SectionKernelsTest,
                         testing::ValuesIn(all_section_kernels().begin(),
                                           all_section_kernels().end()),
                         [](const testing::TestParamInfo<const SectionKernels*>& info) {
                           std::string name = info.param->name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace spillway::wire
