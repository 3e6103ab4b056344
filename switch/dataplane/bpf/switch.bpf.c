/* SPDX-License-Identifier: Apache-2.0
 *
 * The switch in the kernel. The decisions are those of switch/dataplane. This file finds the port,
 * holds its lock while spillway_pass_port() decides, and applies the decision to the frame. It
 * skips the port if the CPU knows what the port would say (processor.h).
 *
 *   spillway_xdp           Ingress, XDP: forwards Spillway packets to their port, and other frames
 *                          if they share the queues. All other frames, and those whose port is
 *                          unknown, go up to the kernel, perhaps to a bridge.
 *   spillway_sums          Ingress, tc, after spillway_xdp: sum packets that XDP cannot finish
 *                          (sums.h).
 *   spillway_forward       Ingress, tc: forwards every frame whose port is known through the port's
 *                          queueing discipline. Sum packets go through the slots first.
 *   spillway_admit_frame   Egress, tc, before the queueing discipline: decides, and picks the
 *                          discipline's class. It sees what the kernel or spillway_forward sends,
 *                          but not what XDP sends.
 *
 * No frame leaves by the interface it came in at, except answers to a FLUSH and sums swapped out of
 * a slot. In XDP, VLAN tags are in the frame, and interfaces must not strip them. In tc the
 * outermost tag is beside the frame.
 */
#define SPILLWAY_LONGEST_SUM SPILLWAY_MAX_TRIM_BYTES

#include <linux/pkt_cls.h>

#include "switch/dataplane/bpf/kernel_helpers.h"
#include "switch/dataplane/bpf/processor.h"
#include "switch/dataplane/bpf/stations.h"
#include "switch/dataplane/bpf/sums.h"
#include "switch/dataplane/bpf/switch_maps.h"
#include "switch/dataplane/station.h"

/* Options, set before loading. The verifier removes what they exclude. */
const volatile __u8 queue_others = 0;  /* other traffic shares the queues; else it is left alone */
const volatile __u8 has_fragments = 0; /* XDP frames may span several buffers (Linux 5.18) */
const volatile __u8 trace_frames = 0;  /* report Spillway packets in `events` */

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, SPILLWAY_MAX_PORTS);
  __uint(map_flags, BPF_F_RDONLY_PROG);
  __type(key, __u32);
  __type(value, struct spillway_switch_port);
} ports SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, SPILLWAY_MAX_PORTS);
  __type(key, __u32);
  __type(value, struct spillway_port_slot);
} slots SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, SPILLWAY_MAX_PORTS);
  __type(key, __u32);
  __type(value, struct spillway_port_tally);
} tallies SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_DEVMAP);
  __uint(max_entries, SPILLWAY_MAX_PORTS);
  __type(key, __u32);
  __type(value, __u32);
} devices SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 22);
} events SEC(".maps");

/* Only user space reads and writes it. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, SPILLWAY_MAX_PORTS);
  __type(key, __u32);
  __type(value, struct spillway_port_label);
} labels SEC(".maps");

/* ------------------------------------------------------------------ deciding */

/* A frame on its way through a port. */
struct passage {
  __u32 number; /* of the port */
  const struct spillway_switch_port* port;
  struct spillway_headers* headers;
  struct spillway_decision decision;
  struct spillway_tag beside; /* its outermost tag, if that is not in the frame */
  __u8 is_lost;               /* to gray loss */
  __u8 is_swapped;            /* carries what was in a slot */
};

/* Reads the frame in the buffer. The barrier keeps the compiler from holding what was read in
 * registers, which the verifier follows (switch_maps.h). */
static inline void read_headers(const __u8* data, const __u8* end, __u32 bytes,
                                const struct spillway_tag* beside,
                                struct spillway_headers* headers) {
  spillway_read_frame_beside(data, end, bytes, beside, &headers->layout, &headers->frame);
  asm volatile("" ::: "memory");
}

/* Random words are needed on the ramp of an ECN port and for gray loss. */
static inline int needs_random(const struct spillway_switch_port* port) {
  const struct spillway_port_config* config = &port->config;
  return port->link.lost_of_2_32 != 0 ||
         (config->mode == SPILLWAY_PORT_ECN && config->red_min_bytes < config->red_max_bytes);
}

/* Admits a frame without asking its port, if the queue is calm and the CPU may report it later.
 * `queued` includes what this CPU has not told the port of yet. */
static inline int passes_untold(struct spillway_processor* processor, struct passage* passage,
                                __u8 queue, __u32 queued) {
  const int is_same = processor->untold_port == passage->number && processor->untold_queue == queue;
  if (is_fresh(processor) || (!is_same && processor->untold_frames != 0) ||
      needs_random(passage->port) ||
      queued + passage->headers->frame.bytes >= passage->port->calm_bytes) {
    return 0;
  }
  if (!is_same) {
    processor->untold_port = passage->number;
    processor->untold_queue = queue;
  }
  processor->untold_bytes += passage->headers->frame.bytes;
  processor->untold_frames += 1;
  spillway_let_in(&passage->headers->frame, queue, &passage->decision);
  return 1;
}

/* Tells another port of the frames that this CPU admitted there. */
static inline void tell_other_port(struct spillway_processor* processor, __u32 number) {
  if (processor->untold_frames == 0 || processor->untold_port == number) {
    return;
  }
  const __u32 other = processor->untold_port;
  struct spillway_port_slot* slot = bpf_map_lookup_elem(&slots, &other);
  if (slot == 0) {
    return;
  }
  bpf_spin_lock(&slot->lock);
  spillway_tell_port(&slot->port, processor->untold_queue, processor->untold_bytes,
                     processor->untold_frames);
  bpf_spin_unlock(&slot->lock);
  processor->untold_frames = 0;
  processor->untold_bytes = 0;
}

static inline void ask_port(struct spillway_processor* processor, struct passage* passage,
                            struct spillway_port_slot* slot) {
  const struct spillway_switch_port* port = passage->port;
  const __u32 random = needs_random(port) ? spillway_next_random(&processor->random_state) : 0;
  tell_other_port(processor, passage->number);
  const __u64 now = bpf_ktime_get_ns();
  bpf_spin_lock(&slot->lock);
  spillway_tell_port(&slot->port, processor->untold_queue, processor->untold_bytes,
                     processor->untold_frames);
  spillway_pass_port(&port->config, &port->link, &slot->port, &passage->headers->frame, now, random,
                     &passage->decision);
  bpf_spin_unlock(&slot->lock);
  processor->untold_frames = 0;
  processor->untold_bytes = 0;
}

static inline void report(const struct passage* passage, const __u8* data, const __u8* end,
                          __u32 queued) {
  const __u8* payload = data + passage->headers->layout.transport + SPILLWAY_UDP_HEADER;
  if (!trace_frames || passage->headers->frame.flags == 0 ||
      payload + sizeof(struct spillway_packet_header) > end) {
    return;
  }
  struct spillway_event* event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
  if (event == 0) {
    return;
  }
  const struct spillway_decision* decision = &passage->decision;
  event->time_ns = bpf_ktime_get_ns();
  event->port = passage->number;
  event->bytes = passage->headers->frame.bytes;
  event->bytes_left = decision->verdict == SPILLWAY_DROP ? 0 : decision->bytes;
  event->queued = queued;
  event->reason = decision->reason;
  event->queue = decision->queue;
  event->ecn = decision->ecn;
  event->is_lost = passage->is_lost;
  event->is_data = (passage->headers->frame.flags & SPILLWAY_FRAME_TRIMMABLE) != 0;
  __builtin_memset(event->reserved, 0, sizeof(event->reserved));
  __builtin_memcpy(&event->header, payload, sizeof(event->header));
  bpf_ringbuf_submit(event, 0);
}

static inline void count(const struct passage* passage) {
  struct spillway_port_tally* tally = bpf_map_lookup_elem(&tallies, &passage->number);
  if (tally == 0) {
    return;
  }
  spillway_count(&tally->counters, &passage->headers->frame, &passage->decision);
  if (passage->is_lost) {
    tally->lost += 1;
  } else if (passage->decision.verdict == SPILLWAY_ENQUEUE) {
    tally->sent_packets += 1;
    tally->sent_bytes += passage->decision.bytes;
  }
}

static inline void count_failure(__u32 number) {
  struct spillway_port_tally* tally = bpf_map_lookup_elem(&tallies, &number);
  if (tally != 0) {
    tally->failed += 1;
  }
}

static inline void count_untouched(__u32 number) {
  struct spillway_port_tally* tally = bpf_map_lookup_elem(&tallies, &number);
  if (tally != 0) {
    tally->untouched += 1;
  }
}

static inline void count_return(__u32 number) {
  struct spillway_port_tally* tally = bpf_map_lookup_elem(&tallies, &number);
  if (tally != 0) {
    tally->same_port += 1;
  }
}

/* Fills in decision and is_lost of a passage whose port was looked up. Returns 0 if there is no
 * such port. */
static inline int decide(struct spillway_processor* processor, struct passage* passage,
                         const __u8* data, const __u8* end) {
  struct spillway_port_slot* slot = bpf_map_lookup_elem(&slots, &passage->number);
  if (passage->port == 0 || slot == 0) {
    return 0;
  }
  const struct spillway_switch_port* port = passage->port;
  const __u8 home = spillway_queue_of(&port->config, &passage->headers->frame);
  const __u32 queued = (home < SPILLWAY_QUEUES ? slot->port.state.bytes[home] : 0) +
                       untold_bytes(processor, passage->number, home);
  if (!passes_untold(processor, passage, home, queued)) {
    ask_port(processor, passage, slot);
  }
  passage->is_lost = passage->decision.verdict == SPILLWAY_ENQUEUE &&
                     port->link.lost_of_2_32 != 0 &&
                     spillway_next_random(&processor->random_state) < port->link.lost_of_2_32;
  count(passage);
  report(passage, data, end, queued);
  return 1;
}

static inline int goes_on(const struct passage* passage) {
  return passage->decision.verdict == SPILLWAY_ENQUEUE && !passage->is_lost;
}

static inline int is_cut(const struct passage* passage) {
  return passage->decision.bytes < passage->headers->frame.bytes;
}

/* Bytes of the frame in the buffer after the cut: a tag beside it is not among them. */
static inline __u32 bytes_there(const struct passage* passage) {
  return passage->decision.bytes - spillway_bytes_beside(&passage->beside);
}

/* Changes to write into a frame. */
struct edit {
  struct spillway_layout layout;
  __u32 bytes; /* in the buffer, after the cut */
  __u8 is_cut;
  __u8 lengths;
  __u8 traffic_class;
  __u8 reserved;
};

static inline int is_changed(const struct passage* passage) {
  return is_cut(passage) || passage->decision.dscp != passage->headers->frame.dscp ||
         passage->decision.ecn != passage->headers->frame.ecn;
}

static inline struct edit edit_of(const struct passage* passage) {
  const struct spillway_decision* decision = &passage->decision;
  const struct edit edit = {.layout = passage->headers->layout,
                            .bytes = bytes_there(passage),
                            .is_cut = (__u8)is_cut(passage),
                            .lengths = passage->port->config.lengths,
                            .traffic_class = (__u8)(decision->dscp << 2 | decision->ecn)};
  return edit;
}

static inline void write_edit(__u8* data, const __u8* end, const struct edit* edit) {
  if (edit->is_cut) {
    spillway_fix_lengths(data, end, edit->bytes, &edit->layout, edit->lengths);
  }
  spillway_set_traffic_class(data, end, &edit->layout, edit->traffic_class);
}

static inline __u32 frame_bytes(struct xdp_md* context) {
  return has_fragments ? (__u32)bpf_xdp_get_buff_len(context)
                       : (__u32)(context->data_end - context->data);
}

/* The tag that the kernel keeps beside the frame. On ingress the kernel has moved the outermost tag
 * out of every frame; on egress it may insert one after this program. */
static inline struct spillway_tag tag_beside(const struct __sk_buff* buffer) {
  struct spillway_tag tag = {};
  if (buffer->vlan_present) {
    tag.type = (__u16)spillway_swap16(buffer->vlan_proto);
    tag.value = (__u16)buffer->vlan_tci;
  }
  return tag;
}

/* Global functions, so that the verifier checks each of them once and not once per path that leads
 * to them: checksums are loops. */
__attribute__((noinline)) int spillway_edit_xdp(struct xdp_md* context, const struct edit* edit) {
  if (!edit) {
    return -1;
  }
  write_edit((__u8*)(long)context->data, (const __u8*)(long)context->data_end, edit);
  return 0;
}

__attribute__((noinline)) int spillway_edit_tc(struct __sk_buff* buffer, const struct edit* edit) {
  if (!edit) {
    return -1;
  }
  write_edit((__u8*)(long)buffer->data, (const __u8*)(long)buffer->data_end, edit);
  return 0;
}

/* ------------------------------------------------------------------ XDP */

/* Passes a sum packet through the slots. Returns 1 if the frame is forwarded as `passage` now says;
 * else `verdict` is final. */
static inline int adds_up(struct xdp_md* context, struct spillway_processor* processor,
                          struct passage* passage, __u32 bytes, int* verdict) {
  const struct sum_passage sum = {
      .layout = passage->headers->layout, .bytes = bytes, .port = context->ingress_ifindex};
  const int step = spillway_sum_xdp(context, &sum);
  *verdict = step == SUM_ABSORBED ? XDP_DROP : XDP_PASS;
  if (step == SUM_SWAPPED) {
    passage->is_swapped = 1;
    const __u8* data = (const __u8*)(long)context->data;
    const __u8* end = (const __u8*)(long)context->data_end;
    read_headers(data, end, bytes, &passage->beside, passage->headers);
    data = (const __u8*)(long)context->data;
    end = (const __u8*)(long)context->data_end;
    return find_port(processor, data, end, &passage->beside, &passage->number);
  }
  return step == SUM_AS_IS || step == SUM_CHANGED;
}

SEC("xdp")
int spillway_xdp(struct xdp_md* context) {
  const __u32 bytes = frame_bytes(context);
  struct spillway_processor* processor = this_processor();
  if (processor == 0) {
    return XDP_PASS;
  }
  struct passage passage = {.headers = &processor->headers};
  const __u8* data = (const __u8*)(long)context->data;
  const __u8* end = (const __u8*)(long)context->data_end;
  read_headers(data, end, bytes, &passage.beside, passage.headers);
  data = (const __u8*)(long)context->data;
  end = (const __u8*)(long)context->data_end;
  const int is_known = find_port(processor, data, end, &passage.beside, &passage.number);
  if (!is_known || passage.headers->frame.flags == 0 ||
      processor->frames % SPILLWAY_LEARN_ONE_IN == 0) {
    learn_station(data, end, &passage.beside, context->ingress_ifindex);
  }
  if (!is_known) {
    return XDP_PASS;
  }
  if (passage.headers->frame.flags == 0 && !queue_others) {
    count_untouched(passage.number);
    return XDP_PASS;
  }
  if (sum_config.slots != 0 && (passage.headers->frame.flags & SPILLWAY_FRAME_SUM)) {
    int verdict;
    if (!adds_up(context, processor, &passage, bytes, &verdict)) {
      return verdict;
    }
    data = (const __u8*)(long)context->data;
    end = (const __u8*)(long)context->data_end;
  }
  passage.port = bpf_map_lookup_elem(&ports, &passage.number);
  if (passage.port != 0 && !passage.is_swapped &&
      spillway_returns(context->ingress_ifindex, passage.port->ifindex)) {
    count_return(passage.number);
    return XDP_DROP;
  }
  if (!decide(processor, &passage, data, end)) {
    return XDP_PASS;
  }
  if (!goes_on(&passage)) {
    return XDP_DROP;
  }
  if (is_cut(&passage) &&
      bpf_xdp_adjust_tail(context, (int)passage.decision.bytes - (int)bytes) != 0) {
    count_failure(passage.number);
    return XDP_DROP;
  }
  if (is_changed(&passage)) {
    const struct edit edit = edit_of(&passage);
    spillway_edit_xdp(context, &edit);
  }
  return (int)bpf_redirect_map(&devices, passage.number, XDP_PASS);
}

/* ------------------------------------------------------------------ tc */

/* Headers that cannot be pulled are not read. */
static inline void pull_headers(struct __sk_buff* buffer) {
  const __u32 headers =
      buffer->len < SPILLWAY_LONGEST_HEADERS ? buffer->len : SPILLWAY_LONGEST_HEADERS;
  if ((const __u8*)(long)buffer->data + headers > (const __u8*)(long)buffer->data_end) {
    bpf_skb_pull_data(buffer, headers);
  }
}

/* The number of the port that leads to the frame's receiver; NULL if none is known. */
static inline const __u32* port_to_receiver(struct __sk_buff* buffer,
                                            const struct spillway_tag* beside) {
  struct spillway_station receiver;
  if (!spillway_read_receiver((const __u8*)(long)buffer->data, (const __u8*)(long)buffer->data_end,
                              beside, &receiver)) {
    return 0;
  }
  return bpf_map_lookup_elem(&stations, &receiver);
}

static inline int send_to_port(struct __sk_buff* buffer, const __u32* number, int is_swapped) {
  const struct spillway_switch_port* port = number ? bpf_map_lookup_elem(&ports, number) : 0;
  if (port == 0) {
    return TC_ACT_UNSPEC;
  }
  if (!is_swapped && spillway_returns(buffer->ifindex, port->ifindex)) {
    count_return(*number);
    return TC_ACT_SHOT;
  }
  return (int)bpf_redirect(port->ifindex, 0);
}

static inline int send_on(struct __sk_buff* buffer, const struct spillway_tag* beside) {
  return send_to_port(buffer, port_to_receiver(buffer, beside), 0);
}

/* Answers a FLUSH with what its slot holds, or forwards it. */
static inline int answer_flush(struct __sk_buff* buffer, const struct spillway_tag* beside,
                               const struct spillway_layout* layout, struct spillway_sum_job* job,
                               union spillway_sum_image* image) {
  const struct spillway_sum_config config = config_of_sums();
  const struct spillway_sum_key key = spillway_sum_key_of(image);
  const __u32 slot = spillway_sum_slot_of(&config, job, &key);
  const __u32 bytes = buffer->len;
  struct spillway_sum_decision decision;
  struct spillway_sum_entry* entry = bpf_map_lookup_elem(&sum_slots, &slot);
  if (entry == 0) {
    spillway_sum_say(&decision, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_PAST_LIMIT);
    count_sum(job, &decision);
    return send_on(buffer, beside);
  }
  if (bpf_skb_change_tail(buffer, layout->ip + SPILLWAY_SUM_DATAGRAM, 0) != 0 ||
      bpf_skb_pull_data(buffer, layout->ip + SPILLWAY_SUM_DATAGRAM) != 0) {
    return TC_ACT_SHOT;
  }
  __u8* data = (__u8*)(long)buffer->data;
  const __u8* end = (const __u8*)(long)buffer->data_end;
  __u8* words = spillway_sum_words_in(data, end, layout);
  if (words == 0) {
    return TC_ACT_SHOT;
  }
  bpf_spin_lock(&entry->lock);
  spillway_decide_flush(&key, &entry->slot, image, &decision);
  const __u8 traffic_class = entry->slot.route.traffic_class;
  if (decision.move == SPILLWAY_SUM_MOVE_READ) {
    spillway_read_words(entry->slot.words, words);
  }
  bpf_spin_unlock(&entry->lock);
  account_sum(job, &decision);
  count_sum(job, &decision);
  spillway_write_sum(data, end, layout, image);
  if (decision.action == SPILLWAY_SUM_TURN) {
    spillway_turn_route(data, end, layout);
    spillway_set_sum_lengths(data, end, layout, traffic_class);
    return (int)bpf_redirect(buffer->ifindex, 0);
  }
  return bpf_skb_change_tail(buffer, bytes, 0) != 0 ? TC_ACT_SHOT : send_on(buffer, beside);
}

/* Copies a RESULT to all recipients whose port is known. */
static inline int spread_result(struct spread_passage* passage, const struct spillway_tag* beside) {
  struct __sk_buff* buffer = passage->buffer;
  struct sum_draft* draft = passage->draft;
  const __u16 destination = draft->image.fields.common.destination;
  if (!spillway_read_route((const __u8*)(long)buffer->data, (const __u8*)(long)buffer->data_end,
                           &passage->layout, &draft->route)) {
    return TC_ACT_UNSPEC;
  }
  if (beside->type != 0) {
    passage->tag = spillway_swap16(beside->type) | spillway_swap16(beside->value) << 16;
  }
  spillway_begin_spread(&draft->image, buffer->ifindex, &draft->spread);
  bpf_loop(SPILLWAY_SUM_RANKS, send_copy, passage, 0);
  spillway_end_spread(&draft->spread);
  count_copies(passage);
  draft->image.fields.common.destination = destination;
  if (!spillway_keep_result(&draft->spread, &draft->image)) {
    return TC_ACT_SHOT;
  }
  __u8* data = (__u8*)(long)buffer->data;
  const __u8* end = (const __u8*)(long)buffer->data_end;
  spillway_write_route(data, end, &passage->layout, &draft->route);
  spillway_write_sum(data, end, &passage->layout, &draft->image);
  return send_on(buffer, beside);
}

static inline int is_for_many(const union spillway_sum_image* image) {
  return image->fields.kind == SPILLWAY_SUM_RESULT &&
         (image->fields.marks & SPILLWAY_SUM_MULTIPLY) != 0;
}

/* Finishes a sum packet that has been through the slots. It goes to its owner, to many receivers,
 * or on like any frame (TC_ACT_UNSPEC). A function of its own, like spillway_sum_tc(): one
 * program's stack cannot hold both. */
__attribute__((noinline)) int spillway_finish_sum(struct __sk_buff* buffer,
                                                  const struct spillway_layout* layout) {
  if (!layout) {
    return TC_ACT_UNSPEC;
  }
  const struct spillway_tag beside = tag_beside(buffer);
  const __u32 zero = 0;
  struct sum_draft* draft = bpf_map_lookup_elem(&sum_drafts, &zero);
  struct spread_passage passage = {.buffer = buffer, .layout = *layout};
  struct spillway_sum_frame sum;
  const __u8* data = (const __u8*)(long)buffer->data;
  const __u8* end = (const __u8*)(long)buffer->data_end;
  if (draft == 0 || !spillway_find_sum(data, end, buffer->len, layout, &draft->image, &sum) ||
      !sum.is_plain) {
    return TC_ACT_UNSPEC;
  }
  struct spillway_sum_job* job =
      job_of_sum(&draft->image, bpf_ktime_get_coarse_ns(), buffer->ifindex);
  if (job == 0) {
    return TC_ACT_UNSPEC;
  }
  passage.job = job;
  passage.draft = draft;
  if (draft->image.fields.kind == SPILLWAY_SUM_FLUSH) {
    return answer_flush(buffer, &beside, layout, job, &draft->image);
  }
  return is_for_many(&draft->image) ? spread_result(&passage, &beside) : TC_ACT_UNSPEC;
}

SEC("tc")
int spillway_sums(struct __sk_buff* buffer) {
  struct spillway_layout layout;
  struct spillway_frame frame;
  pull_headers(buffer);
  const struct spillway_tag beside = tag_beside(buffer);
  spillway_read_frame_beside((const __u8*)(long)buffer->data, (const __u8*)(long)buffer->data_end,
                             buffer->len, &beside, &layout, &frame);
  return frame.flags & SPILLWAY_FRAME_SUM ? spillway_finish_sum(buffer, &layout) : TC_ACT_UNSPEC;
}

/* Passes a sum packet through the slots. Returns 1 if `verdict` is final. */
static inline int takes_sum(struct __sk_buff* buffer, const struct spillway_tag* beside,
                            int* verdict) {
  struct sum_passage passage = {.bytes = buffer->len, .port = buffer->ifindex};
  struct spillway_frame frame;
  pull_headers(buffer);
  const __u8* data = (const __u8*)(long)buffer->data;
  const __u8* end = (const __u8*)(long)buffer->data_end;
  spillway_read_frame_beside(data, end, buffer->len, beside, &passage.layout, &frame);
  if (!(frame.flags & SPILLWAY_FRAME_SUM)) {
    return 0;
  }
  if ((__u32)(end - data) < buffer->len) {
    bpf_skb_pull_data(buffer, buffer->len);
  }
  const int step = spillway_sum_tc(buffer, &passage);
  if (step == SUM_ABSORBED) {
    *verdict = TC_ACT_SHOT;
  } else if (step == SUM_SWAPPED) {
    *verdict = send_to_port(buffer, port_to_receiver(buffer, beside), 1);
  } else if (step == SUM_UP) {
    *verdict = spillway_finish_sum(buffer, &passage.layout);
    return *verdict != TC_ACT_UNSPEC;
  }
  return step == SUM_ABSORBED || step == SUM_SWAPPED;
}

SEC("tc")
int spillway_forward(struct __sk_buff* buffer) {
  const struct spillway_tag beside = tag_beside(buffer);
  const __u32* number = port_to_receiver(buffer, &beside);
  int verdict;
  if (number == 0) {
    learn_station((const __u8*)(long)buffer->data, (const __u8*)(long)buffer->data_end, &beside,
                  buffer->ifindex);
    return TC_ACT_UNSPEC;
  }
  if (sum_config.slots != 0 && takes_sum(buffer, &beside, &verdict)) {
    return verdict;
  }
  return send_to_port(buffer, number, 0);
}

SEC("tc")
int spillway_admit_frame(struct __sk_buff* buffer) {
  struct spillway_processor* processor = this_processor();
  struct passage passage = {};
  if (processor == 0 || !find_own_port(processor, buffer->ifindex, &passage.number)) {
    return TC_ACT_UNSPEC;
  }
  passage.headers = &processor->headers;
  pull_headers(buffer);
  passage.beside = tag_beside(buffer);
  const __u8* data = (const __u8*)(long)buffer->data;
  const __u8* end = (const __u8*)(long)buffer->data_end;
  read_headers(data, end, buffer->len, &passage.beside, passage.headers);
  data = (const __u8*)(long)buffer->data;
  end = (const __u8*)(long)buffer->data_end;
  if (passage.headers->frame.flags == 0 && !queue_others) {
    count_untouched(passage.number);
    return TC_ACT_UNSPEC;
  }
  if (passage.headers->frame.flags == 0 && buffer->wire_len > buffer->len) {
    passage.headers->frame.bytes =
        buffer->wire_len < SPILLWAY_MAX_FRAME_BYTES ? buffer->wire_len : SPILLWAY_MAX_FRAME_BYTES;
  }
  passage.port = bpf_map_lookup_elem(&ports, &passage.number);
  if (!decide(processor, &passage, data, end)) {
    return TC_ACT_UNSPEC;
  }
  if (!goes_on(&passage)) {
    return TC_ACT_SHOT;
  }
  if (is_cut(&passage) && (bpf_skb_change_tail(buffer, bytes_there(&passage), 0) != 0 ||
                           bpf_skb_pull_data(buffer, bytes_there(&passage)) != 0)) {
    count_failure(passage.number);
    return TC_ACT_SHOT;
  }
  if (is_changed(&passage)) {
    const struct edit edit = edit_of(&passage);
    spillway_edit_tc(buffer, &edit);
  }
  if (passage.port->class_handle != 0) {
    buffer->priority = passage.port->class_handle + 1 + passage.decision.queue;
  }
  return TC_ACT_OK;
}

char license_name[] SEC("license") = "Apache-2.0";
