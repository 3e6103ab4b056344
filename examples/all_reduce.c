/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums a buffer over all ranks and prints how long that took and what happened to the packets.
 * Every rank runs this program under a launcher (mpirun, srun, torchrun), or by hand:
 *
 *   SPILLWAY_COMM_ID=127.0.0.1:5000 SPILLWAY_WORLD_SIZE=2 SPILLWAY_RANK=0 ./all_reduce_c &
 *   SPILLWAY_COMM_ID=127.0.0.1:5000 SPILLWAY_WORLD_SIZE=2 SPILLWAY_RANK=1 ./all_reduce_c
 *
 * The optional argument is the number of floats; the default is a million.
 */
#include <inttypes.h>
#include <spillway/spillway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, spillway_last_error());
  return 0;
}

static void print_report(const spillway_comm* comm, size_t count, const spillway_request* request) {
  spillway_operation_report report;
  memset(&report, 0, sizeof report);
  report.size = sizeof report;
  if (spillway_request_report(request, &report) != SPILLWAY_OK) {
    failed("report");
    return;
  }
  printf("rank %" PRIu32 " of %" PRIu32 ": %zu floats in %.3f ms, %" PRIu64
         " packets whole, %" PRIu64 " trimmed, %" PRIu64 " missing, %" PRIu64 " sent, %" PRIu64
         " of them again\n",
         spillway_comm_rank(comm), spillway_comm_world(comm), count,
         (double)report.duration_ns / 1e6, report.packets_whole, report.packets_trimmed,
         report.packets_missing, report.packets_sent, report.packets_repeated);
}

/* Rank r contributes r + 1 everywhere, so every sum is 1 + 2 + ... + world. */
static int sum(spillway_comm* comm, float* values, size_t count) {
  const uint32_t world = spillway_comm_world(comm);
  const float expected = (float)world * (float)(world + 1) / 2;
  spillway_request* request = NULL;
  int works = 0;
  size_t i;
  for (i = 0; i < count; ++i) {
    values[i] = (float)(spillway_comm_rank(comm) + 1);
  }
  if (spillway_all_reduce(comm, values, values, count, SPILLWAY_FLOAT32, SPILLWAY_SUM, NULL,
                          &request) != SPILLWAY_OK) {
    return failed("all_reduce");
  }
  if (spillway_request_wait(request, -1) != SPILLWAY_OK) {
    failed("wait");
  } else if (values[0] != expected || values[count - 1] != expected) {
    fprintf(stderr, "the sum is %g, not %g\n", values[0], expected);
  } else {
    print_report(comm, count, request);
    works = 1;
  }
  spillway_request_free(request);
  return works;
}

int main(int argc, char** argv) {
  const size_t count = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 1000000;
  float* values = count > 0 ? malloc(count * sizeof *values) : NULL;
  spillway_comm* comm = NULL;
  int works = 0;
  if (values == NULL) {
    fprintf(stderr, "usage: %s [COUNT]\n", argv[0]);
    return 2;
  }
  if (spillway_comm_create(NULL, &comm) == SPILLWAY_OK) {
    works = sum(comm, values, count);
  } else {
    failed("comm_create");
  }
  spillway_comm_free(comm);
  free(values);
  return works ? 0 : 1;
}
