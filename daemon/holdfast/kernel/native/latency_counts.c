/* See latency_counts.h. */
#include "latency_counts.h"

#include <time.h>

#include "wire.h"

static struct {
	uint64_t *rows; /* NULL: nothing is counted */
	size_t zones;
	const uint64_t *bounds;
	size_t bounds_count;
	uint32_t *zone;
} counts;

int64_t latency_counts_now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void latency_counts_use(uint64_t *rows, size_t zones, const uint64_t *bounds, size_t bounds_count, uint32_t *zone)
{
	counts.rows = rows;
	counts.zones = zones;
	counts.bounds = bounds;
	counts.bounds_count = bounds_count;
	counts.zone = zone;
}

void latency_counts_reset(void)
{
	counts.rows = NULL;
}

void latency_counts_set_zone(uint32_t zone)
{
	if (counts.rows != NULL)
		*counts.zone = zone;
}

void latency_counts_add(uint32_t opcode, int64_t nanoseconds)
{
	if (counts.rows == NULL || opcode >= OPCODE_LIMIT || *counts.zone >= counts.zones || nanoseconds < 0)
		return;
	uint64_t *row = counts.rows + (opcode * counts.zones + *counts.zone) * (counts.bounds_count + 2);
	size_t bucket = 0;
	while (bucket < counts.bounds_count && (uint64_t)nanoseconds > counts.bounds[bucket])
		bucket++;
	row[bucket]++;
	row[counts.bounds_count + 1] += (uint64_t)nanoseconds;
}
