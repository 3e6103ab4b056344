// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/agreement_notes.h"

#include <utility>

namespace spillway::collective {
namespace {

// A note's part number: its kind plus the coordinator's number.
constexpr std::uint32_t kReady = 0;
constexpr std::uint32_t kProposal = 2;
constexpr std::uint32_t kCommit = 4;
constexpr std::uint8_t kNotePriority = SPILLWAY_PRIORITIES - 1;

std::uint32_t part_of(std::uint32_t what, Chair chair) {
  return what + static_cast<std::uint32_t>(chair);
}

Chair chair_of(std::uint32_t part) {
  return static_cast<Chair>(part % kChairs);
}

std::uint32_t key_of(std::uint32_t part, std::uint16_t from) {
  return part << 16 | from;
}

// READY: the shards, whether a proposal was taken, and that proposal. Other notes: the shards.
std::size_t note_bytes(std::uint32_t part, std::uint16_t world) {
  const std::size_t set = no_shards(world).size();
  return part < kProposal ? 2 * set + 1 : set;
}

std::vector<std::uint8_t> bytes_of(const Readiness& readiness) {
  std::vector<std::uint8_t> bytes = readiness.shards;
  bytes.push_back(readiness.taken ? 1 : 0);
  const ShardSet taken = readiness.taken.value_or(ShardSet(readiness.shards.size(), 0));
  bytes.insert(bytes.end(), taken.begin(), taken.end());
  return bytes;
}

Readiness readiness_of(const std::vector<std::uint8_t>& bytes) {
  const auto half = static_cast<std::ptrdiff_t>(bytes.size() / 2);
  Readiness readiness{ShardSet(bytes.begin(), bytes.begin() + half), std::nullopt};
  if (bytes[static_cast<std::size_t>(half)] != 0) {
    readiness.taken = ShardSet(bytes.begin() + half + 1, bytes.end());
  }
  return readiness;
}

}  // namespace

AgreementNotes::AgreementNotes(const wire::MessageId& like, std::uint16_t least,
                               const RunConfig& config, MessageSet& messages)
    : like_(like),
      config_(config),
      messages_(messages),
      agreement_(config.group, like.operation, least, *this) {}

wire::MessageId AgreementNotes::id_of(std::uint32_t part, std::uint16_t source) const {
  wire::MessageId id = like_;
  id.piece = static_cast<std::uint16_t>(part);
  id.source = source;
  id.phase = kPhase;
  return id;
}

// Every rank exchanges notes with every coordinator.
base::Status AgreementNotes::start(RunContext& context) {
  std::vector<std::pair<std::uint16_t, std::uint32_t>> notes;
  for (std::uint16_t peer = 0; peer < config_.group.world; ++peer) {
    for (const Chair chair : {Chair::kFirst, Chair::kSecond}) {
      if (peer == config_.group.rank) {
        continue;
      }
      if (agreement_.chair(chair) == config_.group.rank) {
        notes.emplace_back(peer, part_of(kReady, chair));
      }
      if (agreement_.chair(chair) == peer) {
        notes.emplace_back(peer, part_of(kProposal, chair));
        notes.emplace_back(peer, part_of(kCommit, chair));
      }
    }
  }
  for (const auto& [peer, part] : notes) {
    if (base::Status status = expect(peer, part, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status AgreementNotes::expect(std::uint16_t from, std::uint32_t part, RunContext& context) {
  Incoming& note = incoming_[key_of(part, from)];
  note.bytes.resize(note_bytes(part, config_.group.world));
  note.sink = std::make_unique<ByteSink>(note.bytes.data(), note.bytes.size(), config_.layout);
  return messages_.expect(config_.layout.receive_options(id_of(part, from), note.bytes.size(),
                                                         kNotePriority, *note.sink),
                          context);
}

base::Status AgreementNotes::send(const Outgoing& note, RunContext& context) {
  Sent& sent = sent_.emplace_back();
  sent.bytes = note.bytes;
  sent.source = std::make_unique<ByteSource>(sent.bytes.data(), sent.bytes.size(), config_.layout);
  transport::SendOptions options = config_.layout.send_options(
      id_of(note.part, config_.group.rank), sent.bytes.size(), kNotePriority, *sent.source);
  options.to = note.to;
  return messages_.send(options, context);
}

void AgreementNotes::send_ready(std::uint16_t to, Chair chair, const Readiness& readiness) {
  outgoing_.push_back({to, part_of(kReady, chair), bytes_of(readiness)});
}

void AgreementNotes::send_proposal(std::uint16_t to, Chair chair, const ShardSet& shards) {
  outgoing_.push_back({to, part_of(kProposal, chair), shards});
}

void AgreementNotes::send_commit(std::uint16_t to, Chair chair, const ShardSet& shards) {
  outgoing_.push_back({to, part_of(kCommit, chair), shards});
}

base::Status AgreementNotes::flush(RunContext& context) {
  if (std::exchange(refuses_first_, false)) {
    const std::uint16_t first = agreement_.chair(Chair::kFirst);
    const transport::MessageKey refused{id_of(part_of(kProposal, Chair::kFirst), first), first};
    messages_.withdraw_if(context, [&](const auto& key) { return key == refused; });
  }
  for (const Outgoing& note : std::exchange(outgoing_, {})) {
    if (base::Status status = send(note, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

void AgreementNotes::on_received(const transport::ReceiveReport& report) {
  if (report.outcome == transport::Outcome::kCancelled) {
    return;
  }
  const std::uint32_t part = report.id.piece;
  const Bytes& bytes = incoming_.at(key_of(part, report.id.source)).bytes;
  if (part < kProposal) {
    agreement_.on_ready(report.id.source, chair_of(part), readiness_of(bytes));
  } else if (part < kCommit) {
    agreement_.on_proposal(chair_of(part), bytes);
  } else {
    agreement_.on_commit(bytes);
  }
}

void AgreementNotes::on_sent(const transport::SendReport& report) {
  if (report.id.piece >= kProposal && report.id.piece < kCommit) {
    const bool took =
        report.outcome == transport::Outcome::kEverything && report.delivered == report.packets;
    agreement_.on_answer(chair_of(report.id.piece), took);
  }
}

}  // namespace spillway::collective
