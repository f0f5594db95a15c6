/* How long requests took: histograms in an array that belongs to Python.
 *
 * Two clocks and an addition in C cost a request 60 ns; in Python they would cost as much as the smallest requests may. The
 * array has a row for each opcode and zone: a count for each bucket, one for what is longer than all of them, and the sum in
 * nanoseconds. Python adds to it too. All of this runs with the GIL held.
 */
#ifndef HOLDFAST_LATENCY_COUNTS_H
#define HOLDFAST_LATENCY_COUNTS_H

#include <stddef.h>
#include <stdint.h>

/* CLOCK_MONOTONIC in nanoseconds. */
int64_t latency_counts_now(void);

/* Count in `rows` from now on: OPCODE_LIMIT times `zones` rows of `bounds_count` + 2 numbers, with the buckets' upper ends in
 * nanoseconds. `zone` is where the number of the zone of the current request stands. The caller keeps all of them. */
void latency_counts_use(uint64_t *rows, size_t zones, const uint64_t *bounds, size_t bounds_count, uint32_t *zone);

/* Count no more. */
void latency_counts_reset(void);

/* The current request is about something in this zone. */
void latency_counts_set_zone(uint32_t zone);

/* The current request, of this kind, has its reply, after so many nanoseconds. */
void latency_counts_add(uint32_t opcode, int64_t nanoseconds);

#endif
