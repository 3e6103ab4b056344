/* SPDX-License-Identifier: Apache-2.0
 *
 * A C program against the installed library: the version must be the package's, and values must
 * survive a round trip in which one packet is trimmed.
 */
#include <spillway/spillway.h>
#include <stdio.h>
#include <string.h>

enum {
  kCount = 20000,
  kTrimmedPayload = 206 - 14 - 20 - 8 /* a trimmed frame less Ethernet, IPv4 and UDP */
};

static float sent[kCount];
static float received[kCount];

static double relative_error(void) {
  double error = 0;
  double energy = 0;
  int i;
  for (i = 0; i < kCount; ++i) {
    const double off = (double)received[i] - sent[i];
    error += off * off;
    energy += (double)sent[i] * sent[i];
  }
  return error / energy;
}

static spillway_status deliver(const spillway_packets* packets, spillway_assembly* assembly) {
  size_t i;
  for (i = 0; i < spillway_packets_count(packets); ++i) {
    const uint8_t* bytes = NULL;
    size_t size = 0;
    spillway_status status = spillway_packets_get(packets, i, &bytes, &size);
    if (status == SPILLWAY_OK) {
      status = spillway_assembly_add(assembly, bytes, i == 0 ? kTrimmedPayload : size, NULL);
    }
    if (status != SPILLWAY_OK) {
      return status;
    }
  }
  return SPILLWAY_OK;
}

static int round_trip(void) {
  spillway_packet_options options;
  spillway_packets* packets = NULL;
  spillway_assembly* assembly = NULL;
  spillway_delivery_report report;
  int works = 0;

  memset(&report, 0, sizeof report);
  report.size = sizeof report;
  spillway_packet_options_init(&options);
  if (spillway_packetize(sent, kCount, &options, &packets) != SPILLWAY_OK ||
      spillway_assembly_create(received, kCount, &options, &assembly) != SPILLWAY_OK ||
      deliver(packets, assembly) != SPILLWAY_OK ||
      spillway_assembly_finish(assembly, &report) != SPILLWAY_OK) {
    fprintf(stderr, "the round trip failed: %s\n", spillway_last_error());
  } else if (report.trimmed != 1 || report.whole + 1 != report.expected) {
    fprintf(stderr, "the report counts %d trimmed packets\n", (int)report.trimmed);
  } else if (!(relative_error() < 0.05)) {
    fprintf(stderr, "the relative error is %g\n", relative_error());
  } else {
    works = 1;
  }
  spillway_assembly_free(assembly);
  spillway_packets_free(packets);
  return works;
}

int main(int argc, char** argv) {
  int i;
  if (argc != 2 || strcmp(spillway_version(), argv[1]) != 0) {
    fprintf(stderr, "the library says it is version %s\n", spillway_version());
    return 1;
  }
  for (i = 0; i < kCount; ++i) {
    sent[i] = (float)(i % 17 - 8);
  }
  return round_trip() ? 0 : 1;
}
