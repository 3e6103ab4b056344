// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/message.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace spillway::membership {
namespace {

// ------------------------------------------------------------------ writing

class MessageWriter {
 public:
  std::vector<std::uint8_t> take() && { return std::move(bytes_); }

  template <base::WireScalar T>
  void put(T value) {
    base::append_le(bytes_, value);
  }
  void put(bool value) { put<std::uint8_t>(value ? 1 : 0); }
  template <typename Bytes>
  void put_bytes(const Bytes& bytes, std::size_t most) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), most);
    put(static_cast<std::uint16_t>(size));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
  }
  template <base::WireScalar T>
  void put_list(const std::vector<T>& list) {
    put(static_cast<std::uint16_t>(list.size()));
    for (const T value : list) {
      put(value);
    }
  }
  void put_why(const std::string& why) {
    put_bytes(base::printable_prefix(why, kMaxWhyBytes), kMaxWhyBytes);
  }
  void put_handle(const Handle& handle) { put_bytes(handle, kMaxHandleBytes); }

  void put_view(const View& view) {
    put(view.epoch);
    put_list(view.ranks);
    put_list(view.standbys);
  }
  void put_decision(const Decision& decision) {
    put(static_cast<std::uint8_t>(decision.outcome));
    put_view(decision.view);
    put_why(decision.why);
    put(decision.step);
    put_list(decision.sources);
    put(static_cast<std::uint16_t>(decision.handles.size()));
    for (const Handle& handle : decision.handles) {
      put_handle(handle);
    }
    bytes_.insert(bytes_.end(), decision.nonce.begin(), decision.nonce.end());
  }

  void write(const Hello& m) {
    put(m.epoch);
    put(m.is_newcomer);
    put(m.is_warm);
    put_handle(m.handle);
  }
  void write(const Welcome& m) { put_view(m.view); }
  void write(const DismissNotice& m) {
    put(m.epoch);
    put_why(m.why);
  }
  void write(const Alive& m) {
    put(m.epoch);
    put(m.step);
    put(m.work.count());
    put(m.ballot);
    put(m.wants_answer);
  }
  void write(const Suspect& m) {
    put(m.epoch);
    put(m.member);
    put(static_cast<std::uint8_t>(m.cause));
  }
  void write(const StragglerNotice& m) {
    put(m.epoch);
    put(m.rank);
    put(m.permille_of_median);
  }
  void write(const LeaveNotice& m) {
    put(m.epoch);
    put(m.is_whole);
  }
  void write(const Done& m) { put(m.epoch); }
  void write(const Halt& m) {
    put(m.epoch);
    put(m.ballot);
    put(m.at_step.has_value());
    put(m.at_step.value_or(0));
    put_why(m.why);
  }
  void write(const StepBegun& m) { write_ballot(m.epoch, m.ballot); }
  void write(const Parked& m) {
    write_ballot(m.epoch, m.ballot);
    put(m.position.has_state);
    put(m.position.step);
    put(m.position.is_warm);
    put(m.in_reach);
    put_handle(m.handle);
    put(m.accepted ? m.accepted_ballot : 0);
    if (m.accepted && m.accepted_ballot != 0) {
      put_decision(*m.accepted);
    }
  }
  void write(const Accept& m) {
    write_ballot(m.epoch, m.ballot);
    put_decision(m.decision);
  }
  void write(const Accepted& m) { write_ballot(m.epoch, m.ballot); }
  void write(const BallotRefused& m) { write_ballot(m.epoch, m.promised); }
  void write(const Chosen& m) { write_ballot(m.epoch, m.ballot); }
  void write(const DecisionNotice& m) { put_decision(m.decision); }
  void write(const ForwardedRequest& m) {
    put(m.epoch);
    put(m.number);
    put(static_cast<std::uint8_t>(m.request.kind));
    put_list(m.request.ranks);
    put(m.request.places);
    put_why(m.request.why);
  }
  void write(const RequestRefused& m) {
    put(m.epoch);
    put(m.number);
    put_why(m.why);
  }
  void write(const Fingerprint& m) {
    put(m.epoch);
    put(m.point);
    put(m.value);
  }

 private:
  void write_ballot(std::uint32_t epoch, Ballot ballot) {
    put(epoch);
    put(ballot);
  }

  std::vector<std::uint8_t> bytes_{};
};

// ------------------------------------------------------------------ reading

// Reads all fields; is_done() tells at the end whether they were valid.
class MessageReader {
 public:
  explicit MessageReader(base::ByteView bytes) : reader_(bytes) {}

  bool is_done() const { return is_sound_ && reader_.ok() && reader_.remaining() == 0; }

  template <base::WireScalar T>
  T get() {
    return reader_.read<T>();
  }
  bool get_bool() {
    const auto byte = get<std::uint8_t>();
    is_sound_ = is_sound_ && byte <= 1;
    return byte == 1;
  }
  template <typename Enum>
  Enum get_enum(Enum last) {
    const auto byte = get<std::uint8_t>();
    is_sound_ = is_sound_ && byte <= static_cast<std::uint8_t>(last);
    return static_cast<Enum>(byte);
  }
  base::ByteView get_bytes(std::size_t most) {
    const auto size = get<std::uint16_t>();
    is_sound_ = is_sound_ && size <= most;
    return is_sound_ ? reader_.take(size) : base::ByteView();
  }
  // Must be printable, because it ends up on terminals.
  std::string get_why() {
    const base::ByteView bytes = get_bytes(kMaxWhyBytes);
    std::string why(bytes.begin(), bytes.end());
    is_sound_ = is_sound_ && why == base::printable(why);
    return why;
  }
  Handle get_handle() {
    const base::ByteView bytes = get_bytes(kMaxHandleBytes);
    return {bytes.begin(), bytes.end()};
  }
  template <base::WireScalar T>
  std::vector<T> get_list(std::size_t most) {
    const auto size = get<std::uint16_t>();
    is_sound_ = is_sound_ && size <= most && reader_.remaining() >= size * sizeof(T);
    std::vector<T> list(is_sound_ ? size : 0);
    for (T& value : list) {
      value = get<T>();
    }
    return list;
  }
  // A valid view is not empty and lists every member once.
  View get_view() {
    View view{.epoch = get<std::uint32_t>()};
    view.ranks = get_list<MemberId>(kMaxMembers);
    view.standbys = get_list<MemberId>(kMaxMembers - view.ranks.size());
    std::vector<MemberId> all = view.ranks;
    all.insert(all.end(), view.standbys.begin(), view.standbys.end());
    std::ranges::sort(all);
    is_sound_ = is_sound_ && view.epoch != 0 && !all.empty() && all.front() != 0 &&
                std::ranges::adjacent_find(all) == all.end();
    return view;
  }
  Decision get_decision() {
    Decision decision;
    decision.outcome = get_enum(Outcome::kEnds);
    decision.view = get_view();
    decision.why = get_why();
    decision.step = get<std::uint64_t>();
    decision.sources = get_list<std::uint32_t>(decision.view.ranks.size());
    const auto handles = get<std::uint16_t>();
    is_sound_ = is_sound_ && handles <= decision.view.ranks.size();
    for (unsigned i = 0; is_sound_ && reader_.ok() && i < handles; ++i) {
      decision.handles.push_back(get_handle());
    }
    const base::ByteView nonce = reader_.take(decision.nonce.size());
    std::copy(nonce.begin(), nonce.end(), decision.nonce.begin());
    is_sound_ = is_sound_ && is_whole(decision);
    return decision;
  }

  void read(Hello& m) {
    m.epoch = get<std::uint32_t>();
    m.is_newcomer = get_bool();
    m.is_warm = get_bool();
    m.handle = get_handle();
  }
  void read(Welcome& m) { m.view = get_view(); }
  void read(DismissNotice& m) {
    m.epoch = get<std::uint32_t>();
    m.why = get_why();
  }
  void read(Alive& m) {
    m.epoch = get<std::uint32_t>();
    m.step = get<std::uint64_t>();
    m.work = base::Duration(get<std::int64_t>());
    m.ballot = get<Ballot>();
    m.wants_answer = get_bool();
    is_sound_ = is_sound_ && m.work >= base::Duration();
  }
  void read(Suspect& m) {
    m.epoch = get<std::uint32_t>();
    m.member = get<MemberId>();
    m.cause = get_enum(LossCause::kData);
  }
  void read(StragglerNotice& m) {
    m.epoch = get<std::uint32_t>();
    m.rank = get<std::uint32_t>();
    m.permille_of_median = get<std::uint32_t>();
  }
  void read(LeaveNotice& m) {
    m.epoch = get<std::uint32_t>();
    m.is_whole = get_bool();
  }
  void read(Done& m) { m.epoch = get<std::uint32_t>(); }
  void read(Halt& m) {
    read_ballot(m.epoch, m.ballot);
    const bool has_step = get_bool();
    const auto step = get<std::uint64_t>();
    is_sound_ = is_sound_ && (has_step || step == 0);
    if (has_step) {
      m.at_step = step;
    }
    m.why = get_why();
  }
  void read(StepBegun& m) { read_ballot(m.epoch, m.ballot); }
  void read(Parked& m) {
    read_ballot(m.epoch, m.ballot);
    m.position.has_state = get_bool();
    m.position.step = get<std::uint64_t>();
    m.position.is_warm = get_bool();
    m.in_reach = get<std::uint16_t>();
    m.handle = get_handle();
    m.accepted_ballot = get<Ballot>();
    if (m.accepted_ballot != 0) {
      m.accepted = get_decision();
      is_sound_ = is_sound_ && m.accepted->view.epoch == m.epoch + 1;
    }
  }
  void read(Accept& m) {
    read_ballot(m.epoch, m.ballot);
    m.decision = get_decision();
    is_sound_ = is_sound_ && m.decision.view.epoch == m.epoch + 1;
  }
  void read(Accepted& m) { read_ballot(m.epoch, m.ballot); }
  void read(BallotRefused& m) { read_ballot(m.epoch, m.promised); }
  void read(Chosen& m) { read_ballot(m.epoch, m.ballot); }
  void read(DecisionNotice& m) { m.decision = get_decision(); }
  void read(ForwardedRequest& m) {
    m.epoch = get<std::uint32_t>();
    m.number = get<std::uint32_t>();
    m.request.kind = get_enum(RequestKind::kEnd);
    m.request.ranks = get_list<std::uint32_t>(kMaxRequestRanks);
    m.request.places = get<std::uint32_t>();
    m.request.why = get_why();
  }
  void read(RequestRefused& m) {
    m.epoch = get<std::uint32_t>();
    m.number = get<std::uint32_t>();
    m.why = get_why();
  }
  void read(Fingerprint& m) {
    m.epoch = get<std::uint32_t>();
    m.point = get<std::uint64_t>();
    m.value = get<std::uint64_t>();
  }

 private:
  void read_ballot(std::uint32_t& epoch, Ballot& ballot) {
    epoch = get<std::uint32_t>();
    ballot = get<Ballot>();
    is_sound_ = is_sound_ && ballot != 0 && round_of(ballot) <= kMaxRound;
  }
  static bool is_whole(const Decision& decision) {
    if (decision.outcome == Outcome::kEnds) {
      return decision.sources.empty() && decision.handles.empty();
    }
    const std::size_t ranks = decision.view.ranks.size();
    return decision.handles.size() == ranks && !decision.sources.empty() &&
           decision.sources.back() < ranks &&
           std::ranges::adjacent_find(decision.sources, std::greater_equal<>()) ==
               decision.sources.end();
  }

  base::ByteReader reader_;
  bool is_sound_ = true;
};

template <std::size_t kKind = 0>
std::optional<Message> parse_kind(std::size_t kind, base::ByteView fields) {
  if constexpr (kKind < std::variant_size_v<Message>) {
    if (kind != kKind) {
      return parse_kind<kKind + 1>(kind, fields);
    }
    std::variant_alternative_t<kKind, Message> message;
    MessageReader reader(fields);
    reader.read(message);
    return reader.is_done() ? std::optional<Message>(std::move(message)) : std::nullopt;
  } else {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::uint8_t> encode(const Message& message) {
  MessageWriter writer;
  writer.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&writer](const auto& m) { writer.write(m); }, message);
  return std::move(writer).take();
}

std::optional<Message> parse_message(base::ByteView bytes) {
  if (bytes.empty()) {
    return std::nullopt;
  }
  return parse_kind(bytes[0], bytes.subspan(1));
}

}  // namespace spillway::membership
