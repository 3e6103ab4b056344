// SPDX-License-Identifier: Apache-2.0
//
// An agreement whose messages go through an endpoint: reliable ones of a few bytes, at the highest
// priority, in the note phase of their operation. A proposal counts as taken when its message was
// received whole, and as refused when its receiver had withdrawn the expectation: the STOP that
// ends every message tells. A rank that has left said neither, and counts as having refused: it may
// have decided otherwise. So before on_first_late() is called, the notes must have been given
// everything that was received earlier.
//
// One thread; lives as long as its operation.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "collective/operation_run.h"
#include "collective/tolerant/agreement.h"

namespace spillway::collective {

class AgreementNotes final : private AgreementPort {
 public:
  static constexpr wire::Phase kPhase = wire::Phase::kNote;

  // `like`: the id of the operation's messages. All but the id outlive the notes.
  AgreementNotes(const wire::MessageId& like, std::uint16_t least, const RunConfig& config,
                 MessageSet& messages);

  Agreement& agreement() { return agreement_; }
  const Agreement& agreement() const { return agreement_; }

  // Expects every note that may come.
  base::Status start(RunContext& context);
  void on_received(const transport::ReceiveReport& report);
  void on_sent(const transport::SendReport& report);
  // Sends what the agreement has to say; call it after every call into the agreement.
  base::Status flush(RunContext& context);

  // Notes that may be in the endpoint at one time.
  static std::size_t max_messages(std::uint16_t world) { return 8U * world; }

 private:
  using Bytes = std::vector<std::uint8_t>;
  struct Outgoing {
    std::uint16_t to;
    std::uint32_t part;
    Bytes bytes;
  };
  struct Incoming {
    Bytes bytes;
    std::unique_ptr<ByteSink> sink;
  };
  struct Sent {
    Bytes bytes;
    std::unique_ptr<ByteSource> source;
  };

  wire::MessageId id_of(std::uint32_t part, std::uint16_t source) const;
  base::Status expect(std::uint16_t from, std::uint32_t part, RunContext& context);
  base::Status send(const Outgoing& note, RunContext& context);

  // AgreementPort: messages are kept until flush() has an endpoint.
  void send_ready(std::uint16_t to, Chair chair, const Readiness& readiness) override;
  void send_proposal(std::uint16_t to, Chair chair, const ShardSet& shards) override;
  void send_commit(std::uint16_t to, Chair chair, const ShardSet& shards) override;
  void refuse_first() override { refuses_first_ = true; }

  wire::MessageId like_;
  const RunConfig& config_;
  MessageSet& messages_;
  Agreement agreement_;
  bool refuses_first_ = false;  // and the endpoint was not told yet
  std::vector<Outgoing> outgoing_;
  std::deque<Sent> sent_;
  std::unordered_map<std::uint32_t, Incoming> incoming_;  // by part and sender
};

}  // namespace spillway::collective
