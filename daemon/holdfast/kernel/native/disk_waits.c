/* See disk_waits.h. */
#include "disk_waits.h"

#include <sys/resource.h>

#include "latency_counts.h"

/* Others may wait for that long once, and again after the pause, which grows with the wait: on a slow disk, too, a steady writer
 * has no more than a fiftieth of the loop's time. */
#define LONG_NS INT64_C(2000000)
#define PAUSE_NS INT64_C(1000000000)
#define PAUSE_FACTOR 50

static int64_t paused_until;

/* How often this thread has waited. Where it lost its processor to another thread is not counted. */
static long waits(void)
{
	struct rusage used;
	return getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_nvcsw : 0;
}

bool disk_waits_none(void)
{
	return paused_until == 0 || latency_counts_now() >= paused_until;
}

struct disk_wait disk_waits_begin(void)
{
	return (struct disk_wait){latency_counts_now(), waits()};
}

void disk_waits_end(const struct disk_wait *wait)
{
	int64_t now = latency_counts_now(), waited = now - wait->began;
	if (waited <= LONG_NS || waits() == wait->waits)
		return;
	int64_t pause = waited * PAUSE_FACTOR;
	paused_until = now + (pause > PAUSE_NS ? pause : PAUSE_NS);
}
