// SPDX-License-Identifier: Apache-2.0
#include "transport/session.h"

#include <algorithm>

#include "base/bytes.h"

namespace spillway::transport {

void Session::Link::on_data(std::uint8_t path, std::uint64_t number) {
  if (path >= newest_data.size()) {
    newest_data.resize(path + std::size_t{1}, first_number);
  }
  newest_data[path] = std::max(newest_data[path], number);
}

Session::Session(const SessionConfig& config, std::uint16_t rank, std::uint64_t epoch,
                 std::uint64_t first_number)
    : config_(config), rank_(rank), epoch_(epoch), first_number_(first_number) {
  if (config.protection == wire::Protection::kCrc32c) {
    crc_ = std::make_shared<wire::PacketAuth>(
        wire::PacketAuth::crc32c(base::load_le<std::uint32_t>(config.key.bytes.data())));
  }
}

base::Status Session::add_peer(std::uint16_t rank) {
  if (find(rank) != nullptr) {
    return {};
  }
  auto link = std::make_unique<Link>();
  link->first_number = first_number_;
  link->newest_control = first_number_;
  if (crc_) {
    link->out = crc_;
    link->in = crc_;
  } else {
    base::Result<wire::PacketAuth> out =
        wire::PacketAuth::make(config_.key, {epoch_, rank_, rank}, config_.protection);
    base::Result<wire::PacketAuth> in =
        wire::PacketAuth::make(config_.key, {epoch_, rank, rank_}, config_.protection);
    if (!out.ok() || !in.ok()) {
      return out.ok() ? in.status() : out.status();
    }
    link->out = std::make_shared<wire::PacketAuth>(std::move(out).value());
    link->in = std::make_shared<wire::PacketAuth>(std::move(in).value());
  }
  if (rank >= links_.size()) {
    links_.resize(rank + std::size_t{1});
  }
  links_[rank] = std::move(link);
  return {};
}

const wire::SumAuth* Session::sums() const {
  if (!sums_) {
    base::Result<wire::SumAuth> made = wire::SumAuth::make(config_.key, epoch_);
    if (!made.ok()) {
      return nullptr;
    }
    sums_ = std::move(made).value();
  }
  return &*sums_;
}

}  // namespace spillway::transport
