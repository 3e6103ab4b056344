// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/checks/check_speed.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>

#include "base/clock.h"
#include "tools/bench/checks/crc32c.h"
#include "tools/bench/command_error.h"
#include "wire/section_kernels.h"

namespace spillway::bench {
namespace {

// ------------------------------------------------------------------ OpenSSL

// Tags packets with OpenSSL's EVP interface, part by part: the competitors in `bench codec --part
// checks`. Nonces and one-time keys are set for every part, as in real use; deriving one-time keys
// is not included. Throws CommandError if OpenSSL lacks an algorithm. One per thread.

enum class OpensslMac : std::uint8_t { kSipHash, kGmac, kPoly1305 };

// Copies each part, then computes its tag.
class OpensslTag {
 public:
  explicit OpensslTag(OpensslMac kind);
  void move(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to);

 private:
  struct Free {
    void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
    void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
  };

  bool start();

  OpensslMac kind_;
  std::unique_ptr<EVP_MAC, Free> mac_;
  std::unique_ptr<EVP_MAC_CTX, Free> context_;
};

// AES-128-GCM: encrypts while copying.
class OpensslGcm {
 public:
  OpensslGcm();
  void move(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to);

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };

  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

constexpr std::size_t kNonce = 12;
constexpr std::size_t kLongestTag = 16;
// The key's value does not affect the time.
constexpr std::array<std::uint8_t, 32> kOpensslKey = {'b', 'e', 'n', 'c', 'h'};

const char* algorithm(OpensslMac kind) {
  switch (kind) {
    case OpensslMac::kSipHash:
      return "SIPHASH";
    case OpensslMac::kGmac:
      return "GMAC";
    case OpensslMac::kPoly1305:
      return "POLY1305";
  }
  return "";
}

void need(bool done, const std::string& what) {
  if (!done) {
    throw CommandError("OpenSSL cannot do " + what +
                       "; `bench codec --part checks` needs OpenSSL 3");
  }
}

OSSL_PARAM nonce_parameter() {
  return OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV,
                                           const_cast<std::uint8_t*>(kOpensslKey.data()), kNonce);
}

OpensslTag::OpensslTag(OpensslMac kind)
    : kind_(kind),
      mac_(EVP_MAC_fetch(nullptr, algorithm(kind), nullptr)),
      context_(mac_ ? EVP_MAC_CTX_new(mac_.get()) : nullptr) {
  char cipher[] = "AES-128-GCM";
  std::size_t tag = CheckLayout::kCheck;
  std::array<OSSL_PARAM, 3> parameters = {OSSL_PARAM_construct_end(), OSSL_PARAM_construct_end(),
                                          OSSL_PARAM_construct_end()};
  if (kind == OpensslMac::kSipHash) {
    parameters[0] = OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &tag);
  } else if (kind == OpensslMac::kGmac) {
    parameters[0] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0);
    parameters[1] = nonce_parameter();
  }
  const std::size_t key = kind == OpensslMac::kPoly1305 ? 32 : 16;
  need(context_ && EVP_MAC_init(context_.get(), kOpensslKey.data(), key, parameters.data()) == 1,
       algorithm(kind));
}

bool OpensslTag::start() {
  switch (kind_) {
    case OpensslMac::kSipHash:
      return EVP_MAC_init(context_.get(), nullptr, 0, nullptr) == 1;
    case OpensslMac::kGmac: {
      const OSSL_PARAM parameters[] = {nonce_parameter(), OSSL_PARAM_construct_end()};
      return EVP_MAC_init(context_.get(), nullptr, 0, parameters) == 1;
    }
    case OpensslMac::kPoly1305:
      return EVP_MAC_init(context_.get(), kOpensslKey.data(), kOpensslKey.size(), nullptr) == 1;
  }
  return false;
}

void OpensslTag::move(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to) {
  std::size_t header = CheckLayout::kHeader;  // bytes; only the first tag covers it
  for (const CheckedPart& part : layout.parts) {
    std::array<std::uint8_t, kLongestTag> tag;
    std::size_t size = 0;
    std::memcpy(to + part.at, from + part.at, part.bytes);
    need(start() && EVP_MAC_update(context_.get(), to, header) == 1 &&
             EVP_MAC_update(context_.get(), to + part.at, part.bytes) == 1 &&
             EVP_MAC_final(context_.get(), tag.data(), &size, tag.size()) == 1,
         algorithm(kind_));
    std::memcpy(to + part.check_at, tag.data(), CheckLayout::kCheck);
    header = 0;
  }
}

OpensslGcm::OpensslGcm() : context_(EVP_CIPHER_CTX_new()) {
  need(context_ && EVP_EncryptInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr,
                                      kOpensslKey.data(), kOpensslKey.data()) == 1,
       "AES-128-GCM");
}

void OpensslGcm::move(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to) {
  int header = CheckLayout::kHeader;
  for (const CheckedPart& part : layout.parts) {
    std::array<std::uint8_t, kLongestTag> tag;
    int size = 0;
    EVP_CIPHER_CTX* context = context_.get();
    need(EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, kOpensslKey.data()) == 1 &&
             (header == 0 || EVP_EncryptUpdate(context, nullptr, &size, to, header) == 1) &&
             EVP_EncryptUpdate(context, to + part.at, &size, from + part.at,
                               static_cast<int>(part.bytes)) == 1 &&
             EVP_EncryptFinal_ex(context, tag.data(), &size) == 1 &&
             EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kLongestTag, tag.data()) == 1,
         "AES-128-GCM");
    std::memcpy(to + part.check_at, tag.data(), CheckLayout::kCheck);
    header = 0;
  }
}

// ------------------------------------------------------------------ the measurement

// Bytes of packets on each side: they fit the L2 cache, like those of a row just encoded.
constexpr std::size_t kRingBytes = std::size_t{1} << 17;
constexpr std::size_t kPage = 4096;
constexpr int kStepsPerSize = 20;

using Move = std::function<void(const std::uint8_t* from, std::uint8_t* to)>;

struct CheckMethod {
  std::string name;
  Move move;
};

// ------------------------------------------------------------------ methods

void move_with_crc(const CheckLayout& layout, const std::uint8_t* from, std::uint8_t* to) {
  constexpr std::size_t kRuns = 3;
  const CheckedPart& head = layout.parts[0];
  const std::uint32_t header = crc32c(~0U, {to, CheckLayout::kHeader});
  base::store_le(to + head.check_at,
                 ~copy_crc32c(header, {from + head.at, head.bytes}, to + head.at));
  for (std::size_t i = 1; i < layout.parts.size(); i += kRuns) {
    const std::size_t runs = std::min(kRuns, layout.parts.size() - i);
    const std::span<const CheckedPart> parts(&layout.parts[i], runs);
    std::array<std::uint32_t, kRuns> states = {~0U, ~1U, ~2U};
    const std::size_t stride = CheckLayout::kSegment + CheckLayout::kCheck;
    copy_crc32c({.from = from + parts[0].at,
                 .from_stride = stride,
                 .to = to + parts[0].at,
                 .to_stride = stride,
                 .length = parts[0].bytes,
                 .last_length = parts.back().bytes},
                std::span(states).first(runs));
    for (std::size_t run = 0; run < runs; ++run) {
      base::store_le(to + parts[run].check_at, ~states[run]);
    }
  }
}

void move_with_tags(const CheckLayout& layout, const wire::SectionKeys& keys,
                    decltype(wire::SectionKernels::seal) kernel, const std::uint8_t* from,
                    std::uint8_t* to) {
  constexpr std::size_t kAtOnce = wire::SectionKernels::kAtOnce;
  for (std::size_t first = 0; first < layout.parts.size(); first += kAtOnce) {
    std::array<wire::Section, kAtOnce> sections;
    std::array<std::uint64_t, kAtOnce> tags;
    const std::size_t count = std::min(kAtOnce, layout.parts.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      const CheckedPart& part = layout.parts[first + i];
      const bool is_head = first + i == 0;
      sections[i] = {.prefix = to,
                     .prefix_bytes = is_head ? CheckLayout::kHeader : 0,
                     .from = from + part.at,
                     .to = to + part.at,
                     .bytes = part.bytes,
                     .nonce = {static_cast<std::uint8_t>(first + i)}};
    }
    kernel(keys, sections.data(), count, tags.data());
    for (std::size_t i = 0; i < count; ++i) {
      base::store_le(to + layout.parts[first + i].check_at, tags[i]);
    }
  }
}

CheckMethod tag_method(const CheckLayout& layout, bool encrypts, bool opens) {
  const wire::SectionKernels& kernels = wire::section_kernels();
  wire::Key<48> key;
  std::iota(key.bytes.begin(), key.bytes.end(), std::uint8_t{1});
  const auto keys = std::make_shared<wire::SectionKeys>();
  wire::expand(key, encrypts, *keys);
  const auto kernel = opens ? kernels.open : kernels.seal;
  return {fmt::format("tag{}, {} ({})", encrypts ? " and cipher" : "", opens ? "open" : "seal",
                      kernels.name),
          [&layout, keys, kernel](const std::uint8_t* from, std::uint8_t* to) {
            move_with_tags(layout, *keys, kernel, from, to);
          }};
}

template <typename Check>
CheckMethod openssl_method(const char* name, const CheckLayout& layout,
                           std::shared_ptr<Check> check) {
  return {fmt::format("{} (EVP)", name),
          [&layout, check](const std::uint8_t* from, std::uint8_t* to) {
            check->move(layout, from, to);
          }};
}

// CRC32C must be the first.
std::vector<CheckMethod> check_methods(const CheckLayout& layout) {
  const auto tag = [&](const char* name, OpensslMac kind) {
    return openssl_method(name, layout, std::make_shared<OpensslTag>(kind));
  };
  return {
      {"crc32c",
       [&layout](const std::uint8_t* from, std::uint8_t* to) { move_with_crc(layout, from, to); }},
      {"nothing (memcpy)", [&layout](const std::uint8_t* from,
                                     std::uint8_t* to) { std::memcpy(to, from, layout.bytes); }},
      tag_method(layout, false, false),
      tag_method(layout, false, true),
      tag_method(layout, true, false),
      tag_method(layout, true, true),
      tag("siphash-2-4", OpensslMac::kSipHash),
      tag("gmac-aes-128", OpensslMac::kGmac),
      tag("poly1305", OpensslMac::kPoly1305),
      openssl_method("aes-128-gcm", layout, std::make_shared<OpensslGcm>())};
}

// ------------------------------------------------------------------ measuring

// Packets to copy from and places to copy them to, half a page apart: processors confuse addresses
// that differ by whole pages, and stall.
struct PacketRing {
  explicit PacketRing(std::size_t bytes)
      : packet_bytes(bytes),
        packets(std::max<std::size_t>(1, kRingBytes / bytes)),
        memory(2 * (packets * bytes + kPage) + kPage, 0x5A),
        to_at((packets * bytes / kPage + 1) * kPage + kPage / 2) {}

  std::size_t packet_bytes;
  std::size_t packets;
  std::vector<std::uint8_t> memory;
  std::size_t to_at;
};

double nanoseconds_per_packet(const Move& move, PacketRing& ring) {
  const base::MonotonicClock clock;
  const base::Instant start = clock.now();
  for (std::size_t i = 0; i < ring.packets; ++i) {
    const std::uint8_t* from = ring.memory.data() + i * ring.packet_bytes;
    move(from, ring.memory.data() + ring.to_at + i * ring.packet_bytes);
  }
  return static_cast<double>((clock.now() - start).count()) / static_cast<double>(ring.packets);
}

std::vector<CheckSpeed> measure_size(std::size_t bytes, int rounds, Progress& progress) {
  const CheckLayout layout = CheckLayout::of(bytes);
  const std::vector<CheckMethod> methods = check_methods(layout);
  PacketRing ring(bytes);
  std::vector<double> best(methods.size(), 1e12);
  for (int round = 0; round < rounds; ++round) {
    if (round % std::max(1, rounds / kStepsPerSize) == 0) {
      progress.step(fmt::format("packets of {} bytes", bytes));
    }
    for (std::size_t i = 0; i < methods.size(); ++i) {
      best[i] = std::min(best[i], nanoseconds_per_packet(methods[i].move, ring));
    }
  }
  std::vector<CheckSpeed> speeds;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    speeds.push_back({methods[i].name, bytes, best[i], best[i] / best[0]});
  }
  return speeds;
}

}  // namespace

std::size_t check_speed_steps(const CheckSpeedOptions& options) {
  const int every = std::max(1, options.rounds / kStepsPerSize);
  return options.packet_bytes.size() *
         static_cast<std::size_t>((options.rounds + every - 1) / every);
}

std::vector<CheckSpeed> measure_check_speed(const CheckSpeedOptions& options, Progress& progress) {
  std::vector<CheckSpeed> speeds;
  for (const std::size_t bytes : options.packet_bytes) {
    const std::vector<CheckSpeed> more = measure_size(bytes, options.rounds, progress);
    speeds.insert(speeds.end(), more.begin(), more.end());
  }
  return speeds;
}

}  // namespace spillway::bench
