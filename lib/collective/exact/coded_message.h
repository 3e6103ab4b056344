// SPDX-License-Identifier: Apache-2.0
//
// Messages of floats that travel as code (codec/entropy/float_coder.h): fewer bytes, the same bits.
// The sender alone decides, message by message: one that does not shrink travels as it is. Every
// packet tells whether it is code, and the code begins with its length (docs/wire.md), so a
// receiver knows what it gets, and by when it has everything.
//
//   SpanCodes    spans that are being sent: each is encoded once, for all ranks that get it
//   EitherSink   takes a message in either form
//
// Sums are formed of decoded values, so results do not depend on who coded what.
//
// One thread, except for the jobs that encode and decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "codec/entropy/float_coder.h"
#include "collective/byte_payload.h"
#include "collective/exact/plan.h"
#include "collective/exact/scratch_pool.h"
#include "collective/loan_pool.h"
#include "collective/operation.h"

namespace spillway::collective {

// For fewer bytes the code's tables cost as much as they save.
inline constexpr std::size_t kLeastCodedBytes = 16 * 1024;

// How the coder sees values of the type; nothing if it does not know them.
std::optional<codec::entropy::FloatWidth> float_width(DataType type);

struct FloatCoders {
  codec::entropy::FloatEncoder encoder;
  codec::entropy::FloatDecoder decoder;
};
using FloatCoderPool = LoanPool<FloatCoders>;

// A span that is being sent, and its code once there is one. The address stays while it is in use.
struct SpanCode {
  ScratchPool::Buffer buffer;
  // Length of the message; nothing if the span does not shrink enough.
  std::optional<std::size_t> bytes{};
  bool is_ready = false;          // its job has ended
  std::vector<StepId> waiting{};  // steps that send it then
  std::uint32_t uses = 0;         // steps that send it and have not ended
};

// A message of code: its length in bytes, u64, and the code.
inline constexpr std::size_t kCodeStart = sizeof(std::uint64_t);

// Most bytes of a message with the code of so many bytes: a little less, because decoding takes
// time.
constexpr std::size_t most_code_bytes(std::size_t bytes) {
  return bytes - bytes / 32;
}

class SpanCodes {
 public:
  // The pool outlives this object.
  explicit SpanCodes(ScratchPool& pool) : pool_(pool) {}
  ~SpanCodes();
  SpanCodes(const SpanCodes&) = delete;
  SpanCodes& operator=(const SpanCodes&) = delete;

  // Each take() must be given back once. With uses == 1, the caller has to encode the span.
  SpanCode& take(const Span& span);
  SpanCode& at(const Span& span) { return codes_.at(key_of(span)); }
  void give_back(const Span& span);

 private:
  using Key = std::tuple<Region, std::size_t, std::size_t>;

  static Key key_of(const Span& span) { return {span.region, span.offset, span.bytes}; }

  ScratchPool& pool_;
  std::map<Key, SpanCode> codes_;
};

// Hands packets to the sink of a plain message, or collects those of its code.
class EitherSink final : public transport::PayloadSink {
 public:
  // All of them outlive the sink. `bytes`: of the plain message.
  EitherSink(transport::PayloadSink& plain, std::size_t bytes, const ByteLayout& layout,
             ScratchPool& pool)
      : plain_(plain), bytes_(bytes), layout_(layout), pool_(pool) {}
  ~EitherSink() override { drop_code(); }
  EitherSink(const EitherSink&) = delete;
  EitherSink& operator=(const EitherSink&) = delete;

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override;
  std::uint32_t packets() const override { return packets_; }

  // Valid once the message has come.
  bool is_coded() const { return form_ == Form::kCode; }
  base::ByteView code() const { return {code_.data.get() + kCodeStart, end_ - kCodeStart}; }
  void drop_code() { pool_.give_back(std::move(code_)); }

 private:
  enum class Form : std::uint8_t { kUnknown, kPlain, kCode };

  unsigned take_code(const wire::OpenedPacket& packet, base::ByteView bytes);
  bool ends_at(std::size_t end);

  transport::PayloadSink& plain_;
  std::size_t bytes_;
  const ByteLayout& layout_;
  ScratchPool& pool_;
  Form form_ = Form::kUnknown;
  std::size_t end_ = 0;        // where the code ends, once a packet told
  std::uint32_t packets_ = 0;  // up to there
  ScratchPool::Buffer code_;
};

}  // namespace spillway::collective
