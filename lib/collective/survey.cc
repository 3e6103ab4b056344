// SPDX-License-Identifier: Apache-2.0
#include "collective/survey.h"

#include "base/bytes.h"

namespace spillway::collective {
namespace {

constexpr std::uint8_t kPriority = SPILLWAY_PRIORITIES - 1;

}  // namespace

wire::MessageId SurveyNotes::id_of(std::uint16_t source) const {
  wire::MessageId id = like_;
  id.piece = kPart;
  id.source = source;
  id.phase = wire::Phase::kNote;
  return id;
}

base::Status SurveyNotes::start(const RankNote& own, RunContext& context) {
  base::store_le<std::uint64_t>(own_.data(), own.capacity);
  base::store_le<std::uint64_t>(own_.data() + 8, own.has_streams ? 1 : 0);
  for (std::size_t traffic = 0; traffic < kTraffics; ++traffic) {
    base::store_le<std::uint64_t>(own_.data() + 8 * (2 + traffic), own.paces[traffic]);
  }
  for (std::uint16_t peer = 0; peer < config_.group.world; ++peer) {
    if (peer == config_.group.rank) {
      continue;
    }
    ByteSink& sink = sinks_.emplace_back(incoming_[peer].data(), kBytes, config_.layout);
    base::Status status = messages_.expect(
        config_.layout.receive_options(id_of(peer), kBytes, kPriority, sink), context);
    if (status.ok()) {
      ByteSource& source = sources_.emplace_back(own_.data(), kBytes, config_.layout);
      transport::SendOptions options =
          config_.layout.send_options(id_of(config_.group.rank), kBytes, kPriority, source);
      options.to = peer;
      status = messages_.send(options, context);
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

std::optional<RankNote> SurveyNotes::on_received(const transport::ReceiveReport& report) {
  messages_.on_received(report);
  if (report.outcome != transport::Outcome::kEverything) {
    return std::nullopt;
  }
  const std::uint8_t* const bytes = incoming_[report.id.source].data();
  RankNote note{.capacity = base::load_le<std::uint64_t>(bytes),
                .has_streams = base::load_le<std::uint64_t>(bytes + 8) == 1};
  for (std::size_t traffic = 0; traffic < kTraffics; ++traffic) {
    note.paces[traffic] = base::load_le<std::uint64_t>(bytes + 8 * (2 + traffic));
  }
  return note;
}

bool SurveyNotes::on_left(std::uint16_t peer, RunContext& context) {
  const auto is_with = [peer](const transport::MessageKey& key) { return key.peer == peer; };
  const bool was_under_way = messages_.any(is_with);
  messages_.withdraw_if(context, is_with);
  return was_under_way;
}

void SurveyNotes::withdraw(RunContext& context) {
  messages_.withdraw_if(context, [](const transport::MessageKey& /*key*/) { return true; });
}

}  // namespace spillway::collective
