// SPDX-License-Identifier: Apache-2.0
#include "elastic/question.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/socket.h"
#include "elastic/mesh.h"

namespace spillway::runtime {
namespace {

// One stream to a member, used by one blocking thread.
class Questioner {
 public:
  Questioner(net::UniqueFd stream, base::Instant deadline)
      : stream_(std::move(stream)), deadline_(deadline) {}

  void wait_until(base::Instant deadline) { deadline_ = deadline; }

  base::Status say(const Frame& frame) {
    const base::Result<Blob> packed = channel_.pack(frame);
    if (!packed.ok()) {
      return packed.status();
    }
    for (std::size_t sent = 0; sent < packed->size();) {
      if (send_some(stream_, *packed, sent) == StreamState::kClosed) {
        return hung_up();
      }
      if (sent < packed->size() && !wait_for(stream_, POLLOUT, deadline_ - clock_.now())) {
        return too_late();
      }
    }
    return {};
  }

  base::Result<Frame> hear() {
    while (true) {
      base::Result<std::optional<Frame>> frame = inbox_.next();
      if (!frame.ok()) {
        return frame.status();
      }
      if (frame->has_value()) {
        return channel_.unpack(std::move(**frame));
      }
      if (!wait_for(stream_, POLLIN, deadline_ - clock_.now())) {
        return too_late();
      }
      Blob bytes;
      if (receive_some(stream_, bytes) == StreamState::kClosed) {
        return hung_up();
      }
      inbox_.append(bytes);
    }
  }

  base::Status shake_hands(GuestHandshake handshake) {
    if (base::Status status = say(handshake.opening()); !status.ok()) {
      return status;
    }
    while (!handshake.is_done()) {
      const base::Result<Frame> frame = hear();
      if (!frame.ok()) {
        return frame.status();
      }
      const base::Result<std::optional<Frame>> answer = handshake.take(*frame);
      if (!answer.ok()) {
        return answer.status();
      }
      if (answer->has_value()) {
        if (base::Status status = say(**answer); !status.ok()) {
          return status;
        }
      }
    }
    channel_ = handshake.channel();
    return {};
  }

 private:
  static base::Status hung_up() {
    return {base::StatusCode::kUnavailable,
            "the job hung up: the ticket is another job's, or the job has a secret that this "
            "process was not given (SPILLWAY_SECRET_FILE)"};
  }
  static base::Status too_late() {
    return {base::StatusCode::kTimedOut, "the job has not answered in time"};
  }

  net::UniqueFd stream_;
  base::MonotonicClock clock_;
  base::Instant deadline_;
  FrameReader inbox_{Mesh::kMaxSpeechBytes};
  Channel channel_{};
};

// Connects to the member at this address within `patience`. The member must prove that it belongs
// to the job. Its answers may come until `deadline`.
base::Result<Questioner> reach(const net::SocketAddress& address, const Credential& credential,
                               base::Duration patience, base::Instant deadline) {
  const base::Instant end = base::MonotonicClock().now() + patience;
  const base::Result<Random> random = draw_random();
  base::Result<net::UniqueFd> stream = connect_to(door_of(address, address.to_string()), patience);
  if (!random.ok() || !stream.ok()) {
    return random.ok() ? stream.status() : random.status();
  }
  Questioner questioner(std::move(stream).value(), end);
  if (base::Status status = questioner.shake_hands(GuestHandshake(credential, *random));
      !status.ok()) {
    return status;
  }
  questioner.wait_until(deadline);
  return questioner;
}

// Reaches the first of the ticket's members that answers. Each address gets a share of the
// remaining time, so a silent one cannot use all of it.
base::Result<Questioner> reach_any(const Ticket& ticket, const Credential& credential,
                                   base::Instant deadline) {
  base::Status status = base::invalid_argument("the ticket names no member of the job");
  for (std::size_t i = 0; i < ticket.addresses.size(); ++i) {
    const base::Duration left = deadline - base::MonotonicClock().now();
    const auto share =
        base::Duration(left.count() / static_cast<std::int64_t>(ticket.addresses.size() - i));
    base::Result<Questioner> questioner =
        reach(ticket.addresses[i], credential, std::max(share, base::Duration()), deadline);
    if (questioner.ok()) {
      return questioner;
    }
    status = questioner.status();
  }
  return status;
}

}  // namespace

base::Result<std::string> ask_job(const Ticket& ticket, base::ByteView secret,
                                  const std::string& question, base::Duration limit) {
  const base::Result<Credential> credential = ticket.credential(secret);
  if (!credential.ok()) {
    return credential.status();
  }
  base::Result<Questioner> reached =
      reach_any(ticket, *credential, base::MonotonicClock().now() + limit);
  if (!reached.ok()) {
    return reached.status();
  }
  Questioner questioner = std::move(reached).value();
  if (base::Status status = questioner.say(encode_text(FrameType::kQuestion, question));
      !status.ok()) {
    return status;
  }
  const base::Result<Frame> reply = questioner.hear();
  if (!reply.ok()) {
    return reply.status();
  }
  return text_of(*reply);
}

base::Result<membership::Request> parse_request(const std::string& question) {
  std::istringstream words(question);
  std::string verb;
  words >> verb;
  membership::Request request{.kind = membership::RequestKind::kEnd,
                              .why = "asked for: " + question};
  if (verb == "move" || verb == "remove") {
    request.kind =
        verb == "move" ? membership::RequestKind::kMove : membership::RequestKind::kRemove;
    for (std::uint32_t rank = 0; words >> rank;) {
      request.ranks.push_back(rank);
    }
    if (request.ranks.empty() || !words.eof()) {
      return base::invalid_argument(
          fmt::format("\"{}\": name the ranks, as in \"{} 2\"", question, verb));
    }
  } else if (verb == "grow") {
    request.kind = membership::RequestKind::kGrow;
    if (!(words >> request.places) || !(words >> std::ws).eof()) {
      return base::invalid_argument(
          fmt::format("\"{}\": say by how many ranks, as in \"grow 2\"", question));
    }
  } else if (verb == "end") {
    // With a reason the job counts as failed; without one it ends as intended.
    request.why.clear();
    std::getline(words >> std::ws, request.why);
  } else {
    return base::invalid_argument(fmt::format(
        "\"{}\" is no question that a job answers; ask status, move, remove, grow or end",
        question));
  }
  return request;
}

}  // namespace spillway::runtime
