// SPDX-License-Identifier: Apache-2.0
#include "elastic/mesh.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <variant>

#include "base/version.h"
#include "observe/log.h"

namespace spillway::elastic {
namespace {

// Limit of a hello, whose card is short.
constexpr std::size_t kMaxHelloBodyBytes = 4096;
constexpr std::size_t kAcceptsPerTurn = 64;
// Pause before a member that turned this one away is dialled again, and before the next accept when
// the process is out of descriptors. Without it the thread would spin.
constexpr base::Duration kCrowdedPause = base::milliseconds(100);

void send_at_once(const net::UniqueFd& socket) {
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

base::Result<net::SocketAddress> local_address(const net::UniqueFd& socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return net::system_error("ask for the address of a socket", errno);
  }
  return net::SocketAddress::from(own);
}

}  // namespace

// One stream: its bytes, handshake and state. Nothing blocks.
class Mesh::Stream {
 public:
  enum class State : std::uint8_t {
    kDialling,
    kHandshake,
    kHello,
    kProof,
    kOpen,
    kQuerying,
    kEnded
  };

  // For the dialling side; the address is kept for error messages and redials.
  Stream(std::uint64_t number, net::UniqueFd socket, comm::StreamAddress address,
         membership::MemberId expected, const comm::Credential& credential,
         const comm::Random& random, base::Instant leave_by)
      : number_(number),
        socket_(std::move(socket)),
        address_(std::move(address)),
        expected_(expected),
        random_(random),
        handshake_(std::in_place_type<comm::JoinerHandshake>, credential, random),
        state_(State::kDialling),
        leave_by_(leave_by) {}
  // For the dialled side.
  Stream(std::uint64_t number, net::UniqueFd socket, const comm::Credential& credential,
         const comm::Random& random, base::Instant leave_by)
      : number_(number),
        socket_(std::move(socket)),
        random_(random),
        handshake_(std::in_place_type<comm::HostHandshake>, credential, random),
        state_(State::kHandshake),
        leave_by_(leave_by) {
    send_at_once(socket_);
  }

  std::uint64_t number() const { return number_; }
  int fd() const { return socket_.get(); }
  short wanted_events() const {
    const bool has_words = state_ == State::kDialling || backlog_ > 0;
    return static_cast<short>(POLLIN | (has_words ? POLLOUT : 0));
  }
  State state() const { return state_; }
  bool is_dialler() const { return std::holds_alternative<comm::JoinerHandshake>(handshake_); }
  // True if the peer dialled and has not proved the job's credential.
  bool is_stranger() const { return !is_dialler() && state_ == State::kHandshake; }
  bool was_answered() const { return was_answered_; }
  // True if this member dialled and the peer closed the stream before any proof. Members do that to
  // strangers when too many come at once.
  bool was_rejected() const { return was_rejected_; }
  const comm::StreamAddress& address() const { return address_; }
  bool is_overdue(base::Instant now) const {
    return state_ != State::kEnded && leave_by() && now >= *leave_by();
  }
  // nullopt for a member's stream, and while the peer waits for an answer.
  std::optional<base::Instant> leave_by() const {
    const bool stays = state_ == State::kOpen || (state_ == State::kQuerying && unanswered_ > 0);
    return stays ? std::nullopt : std::optional(leave_by_);
  }
  // A member that turned this one away is dialled again until then.
  base::Instant dial_until() const { return leave_by_; }
  const std::string& trouble() const { return trouble_; }
  membership::MemberId member() const { return member_; }
  // The member expected at the address; 0: any.
  membership::MemberId expected() const { return expected_; }

  // The peer's claims about itself. Not proved before the stream is open.
  const MemberHello& hello() const { return hello_; }
  bool has_heard_hello() const { return has_heard_hello_; }

  void send_hello(const comm::Frame& hello) {
    own_hello_ = hello.body;
    send(hello);
  }
  // Both sides have said hello; the peer's came as `heard`. From here on, only this process and the
  // one with the hello's key can read or write the stream.
  void prove(const MemberKey& own, const comm::Credential& credential, const MemberHello& hello,
             base::ByteView heard) {
    base::Result<comm::Channel> channel = channel_between(own, {.credential = credential,
                                                                .peer = hello.key,
                                                                .is_dialler = is_dialler(),
                                                                .own = random_,
                                                                .peers = peers_random_,
                                                                .own_hello = own_hello_,
                                                                .peers_hello = heard});
    if (!channel.ok()) {
      end(channel.status().message());
      return;
    }
    hello_ = hello;
    has_heard_hello_ = true;
    channel_ = std::move(channel).value();
    state_ = State::kProof;
    send(encode_member_proof());
  }
  void open() {
    member_ = hello_.card.id;
    state_ = State::kOpen;
    inbox_.set_most_body_bytes(kMaxMessageBytes);
  }
  void ask() {
    state_ = State::kQuerying;
    ++unanswered_;
  }
  void answer(const comm::Frame& frame, base::Instant leave_by) {
    unanswered_ -= unanswered_ > 0 ? 1 : 0;
    leave_by_ = leave_by;
    send(frame);
  }
  void end(std::string why) {
    if (state_ != State::kEnded) {
      state_ = State::kEnded;
      trouble_ = std::move(why);
    }
  }

  void send(const comm::Frame& frame) {
    if (state_ == State::kEnded) {
      return;
    }
    base::Result<comm::Blob> packed = channel_.pack(frame);
    if (!packed.ok() || backlog_ + packed->size() > kMaxBacklog) {
      end(packed.ok() ? "it does not read what it is told" : packed.status().message());
      return;
    }
    backlog_ += packed->size();
    outbox_.push_back(std::move(packed).value());
    flush();
  }

  void flush() {
    while (!outbox_.empty() && state_ != State::kEnded && state_ != State::kDialling) {
      const std::size_t before = sent_;
      const comm::StreamState stream = comm::send_some(socket_, outbox_.front(), sent_);
      backlog_ -= sent_ - before;
      if (stream == comm::StreamState::kClosed) {
        end("the connection was closed");
        return;
      }
      if (sent_ < outbox_.front().size()) {
        return;
      }
      outbox_.pop_front();
      sent_ = 0;
    }
  }

  // Handles the events of poll().
  void on_events(short events) {
    if (state_ == State::kDialling && (events & (POLLOUT | POLLERR | POLLHUP)) != 0) {
      if (const base::Status status = comm::finish_connecting(socket_, address_); !status.ok()) {
        end(status.message());
        return;
      }
      send_at_once(socket_);
      state_ = State::kHandshake;
      send(std::get<comm::JoinerHandshake>(handshake_).opening());
      return;
    }
    flush();
    if ((events & (POLLIN | POLLERR | POLLHUP)) == 0 || state_ == State::kEnded) {
      return;
    }
    comm::Blob bytes;
    if (comm::receive_some(socket_, bytes) == comm::StreamState::kClosed) {
      was_rejected_ = is_dialler() && state_ == State::kHandshake;
      end("the connection was closed");
      return;
    }
    inbox_.append(bytes);
  }

  // Continues the handshake, then returns the next frame after it.
  std::optional<comm::Frame> next() {
    while (state_ != State::kEnded) {
      base::Result<std::optional<comm::Frame>> frame = inbox_.next();
      if (!frame.ok()) {
        end(frame.status().message());
        return std::nullopt;
      }
      if (!frame->has_value()) {
        return std::nullopt;
      }
      if (state_ == State::kHandshake) {
        shake_hands(**frame);
        continue;
      }
      base::Result<comm::Frame> opened = channel_.unpack(std::move(**frame));
      if (!opened.ok()) {
        end(state_ == State::kProof
                ? "it does not prove that its member id is its own, or it refused this member"
                : opened.status().message());
        return std::nullopt;
      }
      return std::move(opened).value();
    }
    return std::nullopt;
  }

  // True once, between the handshake and the first frame after it.
  bool has_just_shaken() { return std::exchange(has_just_shaken_, false); }

 private:
  void shake_hands(const comm::Frame& frame) {
    if (const base::Result<comm::Opening> opening = comm::parse_opening(frame.body);
        frame.type == comm::FrameType::kOpening && opening.ok()) {
      peers_random_ = opening->random;
    } else if (const base::Result<comm::Challenge> challenge = comm::parse_challenge(frame.body);
               frame.type == comm::FrameType::kChallenge && challenge.ok()) {
      peers_random_ = challenge->random;
    }
    std::visit(
        [&](auto& handshake) {
          base::Result<std::optional<comm::Frame>> answer = handshake.take(frame);
          if (!answer.ok()) {
            end(answer.status().message());
            return;
          }
          if (answer->has_value()) {
            was_answered_ = true;
            send(**answer);
          }
          if (handshake.is_done() && state_ != State::kEnded) {
            channel_ = handshake.channel();
            state_ = State::kHello;
            inbox_.set_most_body_bytes(kMaxHelloBodyBytes + comm::kSealBytes);
            has_just_shaken_ = true;
          }
        },
        handshake_);
  }

  std::uint64_t number_;
  net::UniqueFd socket_;
  comm::StreamAddress address_{};
  membership::MemberId expected_ = 0;
  comm::Random random_;
  comm::Random peers_random_{};
  std::variant<comm::JoinerHandshake, comm::HostHandshake> handshake_;
  State state_;
  base::Instant leave_by_;
  bool has_just_shaken_ = false;
  bool was_answered_ = false;
  bool was_rejected_ = false;
  std::size_t unanswered_ = 0;  // number of questions
  comm::Blob own_hello_{};      // as it was said
  bool has_heard_hello_ = false;
  MemberHello hello_{};
  membership::MemberId member_ = 0;
  comm::FrameReader inbox_{comm::kMaxHandshakeBytes};
  comm::Channel channel_{};
  std::deque<comm::Blob> outbox_{};
  std::size_t sent_ = 0;     // bytes of the first already sent
  std::size_t backlog_ = 0;  // unsent bytes of outbox_
  std::string trouble_{};
};

Mesh::Mesh(const Config& config, net::UniqueFd listening, const net::SocketAddress& address,
           MeshListener& listener)
    : config_(config),
      listening_(std::move(listening)),
      own_{.id = config.key.id(), .address = address, .name = config.name},
      listener_(listener) {}
Mesh::~Mesh() = default;

base::Result<std::unique_ptr<Mesh>> Mesh::open(const Config& config, MeshListener& listener) {
  base::Result<net::UniqueFd> listening = comm::listen_exactly(config.listen);
  if (!listening.ok()) {
    return listening.status();
  }
  const base::Result<net::SocketAddress> address = local_address(*listening);
  if (!address.ok()) {
    return address.status();
  }
  return std::unique_ptr<Mesh>(new Mesh(config, std::move(listening).value(), *address, listener));
}

const MemberCard* Mesh::find(membership::MemberId member) const {
  if (member == own_.id) {
    return &own_;
  }
  const auto found = known_.find(member);
  return found == known_.end() ? nullptr : &found->second;
}

std::vector<MemberCard> Mesh::roster() const {
  std::vector<MemberCard> cards = {own_};
  for (const auto& [member, number] : open_) {
    cards.push_back(known_.at(member));
  }
  return cards;
}

void Mesh::add_member(const MemberCard& member) {
  if (member.id == own_.id || known_.size() >= kMaxStreams ||
      !known_.emplace(member.id, member).second || member.id < own_.id) {
    return;
  }
  waiting_.push_back(
      {.address = comm::stream_address_of(member.address, member.address.to_string()),
       .expected = member.id});
}

void Mesh::dial_any_member(const net::SocketAddress& address) {
  std::erase_if(redials_, [](const Dial& again) { return again.expected == 0; });
  std::erase_if(streams_, [](const auto& each) {
    const Stream& stream = *each.second;
    return stream.is_dialler() && stream.expected() == 0 && stream.member() == 0;
  });
  dial({.address = comm::stream_address_of(address, address.to_string())});
}

std::size_t Mesh::dials_under_way() const {
  return static_cast<std::size_t>(std::ranges::count_if(streams_, [](const auto& each) {
    return each.second->is_dialler() && each.second->member() == 0;
  }));
}

// Skips members that have dialled this one in the meantime.
void Mesh::start_waiting_dials() {
  if (waiting_.empty()) {
    return;
  }
  for (std::size_t under_way = dials_under_way(); !waiting_.empty() && under_way < kMaxDials;) {
    const Dial next = std::move(waiting_.front());
    waiting_.pop_front();
    if (!open_.contains(next.expected)) {
      dial(next);
      ++under_way;
    }
  }
}

void Mesh::forget(membership::MemberId member) {
  if (!open_.contains(member) && !listener_.is_member(member)) {
    known_.erase(member);
  }
}

void Mesh::dial(Dial dial) {
  if (dial.leave_by == base::Instant()) {
    dial.leave_by = clock_.now() + kHelloTimeout;
  }
  base::Result<net::UniqueFd> socket = comm::begin_to_connect(dial.address);
  const base::Result<comm::Random> random = comm::draw_random();
  if (!socket.ok() || !random.ok()) {
    observe::log_warn("a member of the job cannot be reached: {}",
                      socket.ok() ? random.status().message() : socket.status().message());
    if (dial.expected != 0) {
      listener_.on_lost(dial.expected);
      forget(dial.expected);
    } else {
      listener_.on_refused(socket.ok() ? random.status().message() : socket.status().message());
    }
    return;
  }
  begin_stream(std::make_unique<Stream>(next_stream_++, std::move(socket).value(), dial.address,
                                        dial.expected, config_.credential, *random, dial.leave_by));
}

void Mesh::begin_stream(std::unique_ptr<Stream> stream) {
  const std::uint64_t number = stream->number();
  streams_.emplace(number, std::move(stream));
}

void Mesh::accept_all() {
  for (std::size_t count = 0; count < kAcceptsPerTurn; ++count) {
    comm::AcceptedClient newcomer = comm::accept_from(listening_);
    if (newcomer.is_out_of_files) {
      closed_until_ = clock_.now() + kCrowdedPause;
      return;
    }
    const base::Result<comm::Random> random = comm::draw_random();
    if (!newcomer.socket.valid() || !random.ok()) {
      return;
    }
    if (make_room(newcomer.source)) {
      strangers_.add(next_stream_, newcomer.source, clock_.now());
      begin_stream(std::make_unique<Stream>(next_stream_++, std::move(newcomer.socket),
                                            config_.credential, *random,
                                            clock_.now() + kHelloTimeout));
    }
  }
}

// False if a connection from `source` must be rejected.
bool Mesh::make_room(const std::string& source) {
  if (streams_.size() - strangers_.size() >= kMaxStreams) {
    return false;
  }
  const net::StrangerTable::Room room = strangers_.room_for(source, clock_.now());
  if (!room.evict) {
    return room.is_free;
  }
  Stream& leaves = *streams_.at(*room.evict);
  serve(leaves, POLLIN);  // its proof may have come; it would then believe it is in
  if (leaves.is_stranger()) {
    strangers_.remove(*room.evict);
    streams_.erase(*room.evict);
  }
  return true;
}

void Mesh::note_stranger(const Stream& stream) {
  if (!stream.is_stranger()) {
    strangers_.remove(stream.number());
  } else if (stream.was_answered()) {
    strangers_.answered(stream.number());
  }
}

Mesh::Stream* Mesh::stream_to(membership::MemberId member) {
  const auto found = open_.find(member);
  return found == open_.end() ? nullptr : streams_.at(found->second).get();
}

void Mesh::send(membership::MemberId to, base::ByteView message) {
  if (Stream* stream = stream_to(to)) {
    stream->send({comm::FrameType::kMemberMessage, comm::Blob(message.begin(), message.end())});
  }
}

void Mesh::close(membership::MemberId member) {
  if (Stream* stream = stream_to(member)) {
    stream->end("hung up");
  }
}

void Mesh::reply(std::uint64_t asker, std::string_view text) {
  const auto found = streams_.find(asker);
  if (found != streams_.end()) {
    found->second->answer(encode_text(comm::FrameType::kReply, text), clock_.now() + kHelloTimeout);
  }
}

void Mesh::turn(base::Instant until, int wake) {
  drop_ended();
  start_waiting_dials();
  const bool is_closed = clock_.now() < closed_until_;
  std::vector<pollfd> polled = {{wake, POLLIN, 0}, {is_closed ? -1 : listening_.get(), POLLIN, 0}};
  until = is_closed ? std::min(until, closed_until_) : until;
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, stream] : streams_) {
    polled.push_back({stream->fd(), stream->wanted_events(), 0});
    numbers.push_back(number);
    until = std::min(until, stream->leave_by().value_or(until));
  }
  for (const Dial& again : redials_) {
    until = std::min(until, again.at);
  }
  const timespec patience = net::timespec_of(until - clock_.now());
  ::ppoll(polled.data(), polled.size(), &patience, nullptr);
  if (polled[1].revents != 0) {
    accept_all();
  }
  redial();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto found = streams_.find(numbers[i]);
    if (found != streams_.end() && polled[i + 2].revents != 0) {
      serve(*found->second, polled[i + 2].revents);
    }
  }
  drop_ended();
}

void Mesh::redial() {
  const base::Instant now = clock_.now();
  const auto due = std::partition(redials_.begin(), redials_.end(),
                                  [now](const Dial& again) { return now < again.at; });
  const std::vector<Dial> dials(due, redials_.end());
  redials_.erase(due, redials_.end());
  for (const Dial& again : dials) {
    dial(again);
  }
}

void Mesh::serve(Stream& stream, short events) {
  stream.on_events(events);
  handle_frames(stream);
  note_stranger(stream);
}

void Mesh::handle_frames(Stream& stream) {
  while (true) {
    const std::optional<comm::Frame> frame = stream.next();
    if (stream.has_just_shaken() && stream.is_dialler()) {
      stream.send_hello(encode(own_hello()));
    }
    if (!frame) {
      return;
    }
    handle_frame(stream, *frame);
  }
}

void Mesh::handle_frame(Stream& stream, const comm::Frame& frame) {
  using State = Stream::State;
  if (stream.state() == State::kHello && frame.type == comm::FrameType::kMember) {
    handle_hello(stream, frame);
  } else if (stream.state() == State::kProof && frame.type == comm::FrameType::kProof) {
    handle_proof(stream);
  } else if (frame.type == comm::FrameType::kQuestion &&
             (stream.state() == State::kHello || stream.state() == State::kQuerying)) {
    stream.ask();
    listener_.on_question(stream.number(), text_of(frame));
  } else if (stream.state() == State::kOpen && frame.type == comm::FrameType::kMemberMessage) {
    listener_.on_member_message(stream.member(), frame.body);
  } else if (stream.state() == State::kOpen && frame.type == comm::FrameType::kRoster) {
    handle_roster(frame);
  } else if (stream.state() == State::kOpen && frame.type == comm::FrameType::kWelcomeMember) {
    handle_welcome(frame);
  } else if (frame.type == comm::FrameType::kRefusal) {
    const base::Result<comm::Refusal> refusal = comm::parse_refusal(frame.body);
    stream.end(refusal.ok() ? refusal->reason : refusal.status().message());
  } else {
    stream.end("it said something that does not belong there");
  }
}

MemberHello Mesh::own_hello() const {
  return {.job = config_.job,
          .standing = config_.standing,
          .key = config_.key.public_key(),
          .version = base::kVersion,
          .card = own_};
}

// Why the peer must not be connected as the member that it says it is; empty if it may.
std::string Mesh::objection_to(const MemberHello& hello, const Stream& stream) const {
  const membership::MemberId id = hello.card.id;
  const base::Result<membership::MemberId> id_of_key = id_of(hello.key);
  if (hello.job != config_.job) {
    return "this is another job's member";
  }
  if (hello.version != base::kVersion) {
    return fmt::format("the job runs version {}, not {}", base::kVersion, hello.version);
  }
  if (!id_of_key.ok() || *id_of_key != id) {
    return "its member id is not that of its key";
  }
  if (open_.contains(id) || id == own_.id) {
    return "there is such a member already";
  }
  if (ended_.contains(id) && listener_.is_member(id)) {
    return "that member was lost when its stream ended: start a new process, which joins with an "
           "id of its own";
  }
  if (stream.expected() != 0 && stream.expected() != id) {
    return "another member was expected there";
  }
  return known_.size() >= kMaxStreams && !known_.contains(id)
             ? "the job knows as many processes as it can"
             : "";
}

void Mesh::refuse(Stream& stream, const std::string& why) {
  stream.send(encode(comm::Refusal{.final = true, .reason = why}));
  stream.end(why);
}

void Mesh::handle_hello(Stream& stream, const comm::Frame& frame) {
  const base::Result<MemberHello> hello = parse_member_hello(frame.body);
  const std::string why = hello.ok() ? objection_to(*hello, stream) : hello.status().message();
  if (!why.empty()) {
    refuse(stream, why);
    return;
  }
  if (!stream.is_dialler()) {
    stream.send_hello(encode(own_hello()));
  }
  stream.prove(config_.key, config_.credential, *hello, frame.body);
}

void Mesh::handle_proof(Stream& stream) {
  const MemberHello hello = stream.hello();
  // The process may have opened another stream since its hello.
  if (const std::string why = objection_to(hello, stream); !why.empty()) {
    refuse(stream, why);
    return;
  }
  known_[hello.card.id] = hello.card;
  open_[hello.card.id] = stream.number();
  stream.open();
  if (!stream.is_dialler() && hello.standing == Standing::kNewcomer &&
      config_.standing == Standing::kMember) {
    stream.send(encode(MemberWelcome{.key = listener_.key(), .cards = roster()}));
    announce(hello.card);
  }
  listener_.on_connected(hello.card);
}

void Mesh::note_ended(membership::MemberId member) {
  if (!listener_.is_member(member)) {
    return;
  }
  if (ended_.size() >= membership::kMaxMembers) {
    std::erase_if(ended_, [this](membership::MemberId id) { return !listener_.is_member(id); });
  }
  ended_.insert(member);
}

// The smaller id of each pair dials: either the newcomer or the member that gets this roster.
void Mesh::announce(const MemberCard& newcomer) {
  const comm::Frame roster = encode_roster({newcomer});
  for (const auto& [member, number] : open_) {
    if (member != newcomer.id) {
      streams_.at(number)->send(roster);
    }
  }
}

void Mesh::handle_welcome(const comm::Frame& frame) {
  if (config_.standing != Standing::kNewcomer) {
    return;  // already welcomed by another member
  }
  const base::Result<MemberWelcome> welcome = parse_member_welcome(frame.body);
  if (!welcome.ok()) {
    observe::log_warn("the job's welcome makes no sense: {}", welcome.status().message());
    return;
  }
  become_member();
  listener_.on_welcome(*welcome);
  for (const MemberCard& card : welcome->cards) {
    add_member(card);
  }
}

void Mesh::handle_roster(const comm::Frame& frame) {
  const base::Result<std::vector<MemberCard>> cards = parse_roster(frame.body);
  if (!cards.ok()) {
    return;
  }
  for (const MemberCard& card : *cards) {
    add_member(card);
  }
}

void Mesh::drop_ended() {
  const base::Instant now = clock_.now();
  std::vector<membership::MemberId> lost;
  std::string refusal;
  for (auto at = streams_.begin(); at != streams_.end();) {
    Stream& stream = *at->second;
    if (stream.is_overdue(now)) {
      stream.end("it did not say in time who it is");
    }
    if (stream.state() != Stream::State::kEnded) {
      ++at;
      continue;
    }
    if (stream.member() != 0) {
      observe::log_info(observe::LogSubsystem::kNet, "{} is out of reach: {}",
                        known_.at(stream.member()).name, stream.trouble());
      open_.erase(stream.member());
      note_ended(stream.member());
      lost.push_back(stream.member());
    } else if (stream.was_rejected() && now + kCrowdedPause < stream.dial_until()) {
      redials_.push_back({.address = stream.address(),
                          .expected = stream.expected(),
                          .at = now + kCrowdedPause,
                          .leave_by = stream.dial_until()});
    } else if (stream.is_dialler()) {
      refusal = stream.trouble();
      observe::log_info(observe::LogSubsystem::kNet, "a member cannot be reached: {}", refusal);
      if (stream.expected() != 0 && !open_.contains(stream.expected())) {
        lost.push_back(stream.expected());
      }
    } else if (stream.has_heard_hello()) {
      observe::log_info(observe::LogSubsystem::kNet,
                        "a process that connected as a member was not let in: {}",
                        stream.trouble());
    }
    strangers_.remove(at->first);
    at = streams_.erase(at);
  }
  for (const membership::MemberId member : lost) {
    listener_.on_lost(member);
    forget(member);
  }
  if (!refusal.empty() && config_.standing == Standing::kNewcomer && open_.empty()) {
    listener_.on_refused(refusal);
  }
}

}  // namespace spillway::elastic
