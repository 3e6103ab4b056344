// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/switch_events.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <cstring>

#include "net/system_call.h"

namespace spillway::kernel {
namespace {

bool tells(int map) {
  bpf_map_info info = {};
  std::uint32_t bytes = sizeof(info);
  return ::bpf_obj_get_info_by_fd(map, &info, &bytes) == 0 && info.max_entries > kUnusedRingBytes;
}

std::vector<std::string> port_names(const SwitchMaps& maps) {
  std::vector<std::string> names;
  while (const std::optional<spillway_port_label> label =
             maps.label(static_cast<std::uint32_t>(names.size()))) {
    names.emplace_back(label->name, ::strnlen(label->name, sizeof(label->name)));
  }
  return names;
}

}  // namespace

void SwitchEvents::Close::operator()(ring_buffer* ring) const {
  ::ring_buffer__free(ring);
}

SwitchEvents::SwitchEvents(std::size_t most) : most_(most) {}

SwitchEvents::~SwitchEvents() = default;

base::Result<std::unique_ptr<SwitchEvents>> SwitchEvents::open(const KernelSwitch& from,
                                                               std::size_t most) {
  const int map = from.maps().fd(MapName::kEvents);
  if (!tells(map)) {
    return base::Status(base::StatusCode::kUnavailable,
                        "this switch was attached without --trace and tells nothing of single "
                        "packets: detach it and attach it with --trace");
  }
  std::unique_ptr<SwitchEvents> opened(new SwitchEvents(most));
  opened->ring_.reset(::ring_buffer__new(map, &SwitchEvents::on_event, opened.get(), nullptr));
  if (opened->ring_ == nullptr) {
    return net::system_error("read the switch's events", errno);
  }
  opened->read();
  opened->events_.clear();
  opened->left_out_ = 0;
  opened->ports_ = port_names(from.maps());
  return opened;
}

bool SwitchEvents::read() {
  return ::ring_buffer__consume(ring_.get()) > 0;
}

int SwitchEvents::on_event(void* self, void* data, std::size_t bytes) {
  spillway_event event;
  if (bytes >= sizeof(event)) {
    std::memcpy(&event, data, sizeof(event));
    static_cast<SwitchEvents*>(self)->keep(event);
  }
  return 0;
}

void SwitchEvents::keep(const spillway_event& event) {
  if (events_.size() < most_) {
    events_.push_back(event);
  } else {
    ++left_out_;
  }
}

}  // namespace spillway::kernel
