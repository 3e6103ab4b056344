// SPDX-License-Identifier: Apache-2.0
//
// MPI_Allreduce in place, timed: `mpirun ... spillway_mpi_allreduce TYPE OP COUNT WARMUP ITERATIONS
// IN_FLIGHT`. Rank 0 prints "times" and, for every iteration, the seconds of its slowest rank, or
// "error" and a sentence. MPI has no average: its sum replaces it.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

struct task {
  MPI_Datatype type;
  MPI_Op op;
  int count;
  int warmup;
  int iterations;
  int in_flight;
};

static MPI_Datatype type_named(const char* name) {
  if (strcmp(name, "float") == 0)
    return MPI_FLOAT;
  if (strcmp(name, "double") == 0)
    return MPI_DOUBLE;
  if (strcmp(name, "int32") == 0)
    return MPI_INT32_T;
  if (strcmp(name, "int64") == 0)
    return MPI_INT64_T;
  return MPI_DATATYPE_NULL;
}

static MPI_Op op_named(const char* name) {
  if (strcmp(name, "min") == 0)
    return MPI_MIN;
  if (strcmp(name, "max") == 0)
    return MPI_MAX;
  return MPI_SUM;
}

static void run_once(const struct task* task, char** buffers, MPI_Request* requests) {
  if (task->in_flight == 1) {
    MPI_Allreduce(MPI_IN_PLACE, buffers[0], task->count, task->type, task->op, MPI_COMM_WORLD);
    return;
  }
  for (int i = 0; i < task->in_flight; ++i) {
    MPI_Iallreduce(MPI_IN_PLACE, buffers[i], task->count, task->type, task->op, MPI_COMM_WORLD,
                   &requests[i]);
  }
  MPI_Waitall(task->in_flight, requests, MPI_STATUSES_IGNORE);
}

static void measure(const struct task* task, double* seconds) {
  int size = 0;
  MPI_Type_size(task->type, &size);
  char** buffers = malloc((size_t)task->in_flight * sizeof(*buffers));
  MPI_Request* requests = malloc((size_t)task->in_flight * sizeof(*requests));
  for (int i = 0; i < task->in_flight; ++i) {
    buffers[i] = malloc((size_t)task->count * (size_t)size);
    memset(buffers[i], 0, (size_t)task->count * (size_t)size);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = -task->warmup; i < task->iterations; ++i) {
    const double start = MPI_Wtime();
    run_once(task, buffers, requests);
    if (i >= 0) {
      seconds[i] = MPI_Wtime() - start;
    }
  }
  for (int i = 0; i < task->in_flight; ++i) {
    free(buffers[i]);
  }
  free(buffers);
  free(requests);
}

static void print_slowest(int rank, const double* seconds, int iterations) {
  double* slowest = malloc((size_t)iterations * sizeof(*slowest));
  MPI_Reduce(seconds, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("times");
    for (int i = 0; i < iterations; ++i) {
      printf(" %.9f", slowest[i]);
    }
    printf("\n");
  }
  free(slowest);
}

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 7 || type_named(argv[1]) == MPI_DATATYPE_NULL) {
    if (rank == 0) {
      printf("error MPI has no such type\n");
    }
  } else {
    const struct task task = {type_named(argv[1]), op_named(argv[2]), atoi(argv[3]),
                              atoi(argv[4]),       atoi(argv[5]),     atoi(argv[6])};
    double* seconds = malloc((size_t)task.iterations * sizeof(*seconds));
    measure(&task, seconds);
    print_slowest(rank, seconds, task.iterations);
    free(seconds);
  }
  MPI_Finalize();
  return 0;
}
