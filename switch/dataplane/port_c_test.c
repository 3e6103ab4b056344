/* SPDX-License-Identifier: Apache-2.0 */
/* The logic of ports, frames, stations and sums must compile as plain C, as it does for eBPF. */
#include "switch/dataplane/admission.h"
#include "switch/dataplane/fixup.h"
#include "switch/dataplane/scheduling.h"
#include "switch/dataplane/station.h"
#include "switch/dataplane/sum_frame.h"

int spillway_test_port_in_c(const struct spillway_port_config* config,
                            struct spillway_port_state* state, const struct spillway_frame* frame) {
  struct spillway_decision decision;
  spillway_admit(config, state, frame, 0, &decision);
  if (decision.verdict == SPILLWAY_ENQUEUE) {
    spillway_enqueued(state, decision.queue, decision.bytes);
  }
  return spillway_next_queue(state);
}
