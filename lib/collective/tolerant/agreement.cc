// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/agreement.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spillway::collective {

Agreement::Agreement(const Group& group, std::uint64_t sequence, std::uint16_t least,
                     AgreementPort& port)
    : group_(group),
      least_(least),
      port_(port),
      first_(static_cast<std::uint16_t>(sequence % group.world)) {
  SPILLWAY_CHECK(group.world >= 2);
  for (Ballot& each : ballots_) {
    each.has_reported.resize(group.world);
  }
}

void Agreement::count(Coordinator which, std::uint16_t from, const Readiness& readiness) {
  Ballot& votes = ballot(which);
  const ShardSet& shards = readiness.shards;
  if (votes.has_reported[from] || shards.size() != no_shards(group_.world).size()) {
    return;
  }
  votes.has_reported[from] = true;
  if (readiness.accepted) {
    votes.accepted = readiness.accepted;
  }
  if (votes.ready++ == 0) {
    votes.common = shards;
    return;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    votes.common[i] = static_cast<std::uint8_t>(votes.common[i] & shards[i]);
  }
}

void Agreement::on_own_ready(const ShardSet& shards) {
  SPILLWAY_CHECK(own_.empty());
  own_ = shards;
  if (is_coordinator(Coordinator::kFirst)) {
    count(Coordinator::kFirst, group_.rank, {own_, std::nullopt});
    propose_if_possible(Coordinator::kFirst);
  } else {
    port_.send_ready(coordinator(Coordinator::kFirst), Coordinator::kFirst, {own_, std::nullopt});
  }
}

void Agreement::on_ready(std::uint16_t from, Coordinator which, const Readiness& readiness) {
  count(which, from, readiness);
  if (which == Coordinator::kSecond && decision_) {
    if (!ballot(which).is_committed) {
      port_.send_commit(from, which, *decision_);  // the first's decision, made before they asked
    }
    return;
  }
  propose_if_possible(which);
}

// All ranks are ready (except the first, if the second asks), or enough are and time is up. The
// second needs a majority that refuses the first from now on.
bool Agreement::may_propose(Coordinator which) {
  const Ballot& votes = ballot(which);
  if (!is_coordinator(which) || decision_ || votes.proposal || !is_ready()) {
    return false;
  }
  const bool is_second = which == Coordinator::kSecond;
  if (is_second && (!asked_second_ || votes.ready < majority())) {
    return false;
  }
  const bool without_first = is_second && !votes.has_reported[coordinator(Coordinator::kFirst)];
  const unsigned all = group_.world - (without_first ? 1U : 0U);
  return votes.ready >= all || (is_wait_over_ && votes.ready >= std::min<unsigned>(least_, all));
}

void Agreement::propose_if_possible(Coordinator which) {
  if (!may_propose(which)) {
    return;
  }
  Ballot& votes = ballot(which);
  votes.proposal = votes.accepted.value_or(votes.common);
  for (std::uint16_t rank = 0; rank < group_.world; ++rank) {
    if (rank != group_.rank) {
      port_.send_proposal(rank, which, *votes.proposal);
    }
  }
  // This rank takes its own proposal, unless it has promised the second otherwise.
  const bool takes = which == Coordinator::kSecond || !asked_second_;
  if (takes && which == Coordinator::kFirst) {
    accepted_ = votes.proposal;
  }
  votes.acceptances = static_cast<std::uint16_t>(votes.acceptances + (takes ? 1 : 0));
  commit_if_accepted(which);
}

void Agreement::on_proposal(Coordinator which, const ShardSet& shards) {
  if (which == Coordinator::kFirst) {
    accepted_ = shards;
  }
}

void Agreement::on_response(Coordinator which, bool accepted) {
  ballot(which).acceptances =
      static_cast<std::uint16_t>(ballot(which).acceptances + (accepted ? 1 : 0));
  commit_if_accepted(which);
}

void Agreement::commit_if_accepted(Coordinator which) {
  Ballot& votes = ballot(which);
  if (decision_ || !votes.proposal || votes.acceptances < majority()) {
    return;
  }
  decision_ = votes.proposal;
  votes.is_committed = true;
  for (std::uint16_t rank = 0; rank < group_.world; ++rank) {
    if (rank != group_.rank) {
      port_.send_commit(rank, which, *decision_);
    }
  }
}

void Agreement::on_commit(const ShardSet& shards) {
  if (!decision_) {
    decision_ = shards;
  }
}

void Agreement::on_wait_over() {
  is_wait_over_ = true;
  propose_if_possible(Coordinator::kFirst);
  propose_if_possible(Coordinator::kSecond);
}

void Agreement::on_first_late() {
  if (decision_ || asked_second_ || !is_ready()) {
    return;
  }
  asked_second_ = true;
  port_.refuse_first();
  if (is_coordinator(Coordinator::kSecond)) {
    count(Coordinator::kSecond, group_.rank, {own_, accepted_});
    propose_if_possible(Coordinator::kSecond);
  } else {
    port_.send_ready(coordinator(Coordinator::kSecond), Coordinator::kSecond, {own_, accepted_});
  }
}

namespace {

// A note's part number: its kind plus the coordinator's number.
constexpr std::uint32_t kReady = 0;
constexpr std::uint32_t kProposal = 2;
constexpr std::uint32_t kCommit = 4;
constexpr std::uint8_t kNotePriority = SPILLWAY_PRIORITIES - 1;

std::uint32_t part_of(std::uint32_t what, Coordinator coordinator) {
  return what + static_cast<std::uint32_t>(coordinator);
}

Coordinator coordinator_of(std::uint32_t part) {
  return static_cast<Coordinator>(part % kCoordinators);
}

std::uint32_t key_of(std::uint32_t part, std::uint16_t from) {
  return part << 16 | from;
}

// READY: the shards, whether a proposal was accepted, and that proposal. Other notes: the shards.
std::size_t note_bytes(std::uint32_t part, std::uint16_t world) {
  const std::size_t set = no_shards(world).size();
  return part < kProposal ? 2 * set + 1 : set;
}

std::vector<std::uint8_t> bytes_of(const Readiness& readiness) {
  std::vector<std::uint8_t> bytes = readiness.shards;
  bytes.push_back(readiness.accepted ? 1 : 0);
  const ShardSet accepted = readiness.accepted.value_or(ShardSet(readiness.shards.size(), 0));
  bytes.insert(bytes.end(), accepted.begin(), accepted.end());
  return bytes;
}

Readiness readiness_of(const std::vector<std::uint8_t>& bytes) {
  const auto half = static_cast<std::ptrdiff_t>(bytes.size() / 2);
  Readiness readiness{ShardSet(bytes.begin(), bytes.begin() + half), std::nullopt};
  if (bytes[static_cast<std::size_t>(half)] != 0) {
    readiness.accepted = ShardSet(bytes.begin() + half + 1, bytes.end());
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
    for (const Coordinator coordinator : {Coordinator::kFirst, Coordinator::kSecond}) {
      if (peer == config_.group.rank) {
        continue;
      }
      if (agreement_.coordinator(coordinator) == config_.group.rank) {
        notes.emplace_back(peer, part_of(kReady, coordinator));
      }
      if (agreement_.coordinator(coordinator) == peer) {
        notes.emplace_back(peer, part_of(kProposal, coordinator));
        notes.emplace_back(peer, part_of(kCommit, coordinator));
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

void AgreementNotes::send_ready(std::uint16_t to, Coordinator coordinator,
                                const Readiness& readiness) {
  outgoing_.push_back({to, part_of(kReady, coordinator), bytes_of(readiness)});
}

void AgreementNotes::send_proposal(std::uint16_t to, Coordinator coordinator,
                                   const ShardSet& shards) {
  outgoing_.push_back({to, part_of(kProposal, coordinator), shards});
}

void AgreementNotes::send_commit(std::uint16_t to, Coordinator coordinator,
                                 const ShardSet& shards) {
  outgoing_.push_back({to, part_of(kCommit, coordinator), shards});
}

base::Status AgreementNotes::flush(RunContext& context) {
  if (std::exchange(refuses_first_, false)) {
    const std::uint16_t first = agreement_.coordinator(Coordinator::kFirst);
    const transport::MessageKey refused{id_of(part_of(kProposal, Coordinator::kFirst), first),
                                        first};
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
    agreement_.on_ready(report.id.source, coordinator_of(part), readiness_of(bytes));
  } else if (part < kCommit) {
    agreement_.on_proposal(coordinator_of(part), bytes);
  } else {
    agreement_.on_commit(bytes);
  }
}

void AgreementNotes::on_sent(const transport::SendReport& report) {
  if (report.id.piece >= kProposal && report.id.piece < kCommit) {
    const bool accepted =
        report.outcome == transport::Outcome::kEverything && report.delivered == report.packets;
    agreement_.on_response(coordinator_of(report.id.piece), accepted);
  }
}

}  // namespace spillway::collective
