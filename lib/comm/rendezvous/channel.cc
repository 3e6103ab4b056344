// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/channel.h"

namespace spillway::runtime {

base::Result<Blob> Channel::pack(const Frame& frame) {
  if (!sending_) {
    return to_bytes(frame);
  }
  const auto header = header_of(frame.type, frame.body.size() + kSealBytes);
  base::Result<Blob> body = seal({sending_->key, sending_->frames++, header}, frame.body);
  if (!body.ok()) {
    return body.status();
  }
  return to_bytes({frame.type, std::move(body).value()});
}

base::Result<Frame> Channel::unpack(Frame frame) {
  if (!receiving_) {
    return frame;
  }
  const auto header = header_of(frame.type, frame.body.size());
  base::Result<Blob> body = unseal({receiving_->key, receiving_->frames++, header}, frame.body);
  if (!body.ok()) {
    return body.status();
  }
  return Frame{frame.type, std::move(body).value()};
}

}  // namespace spillway::runtime
