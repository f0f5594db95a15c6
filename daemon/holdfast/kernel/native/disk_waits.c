/* See disk_waits.h. */
#include "disk_waits.h"

#include <stdatomic.h>
#include <sys/resource.h>

#include "dirty_pages.h"
#include "latency_counts.h"

/* Others may wait for that long once, and again after the pause, which grows with the wait: on a slow disk, too, a steady writer
 * has no more than a fiftieth of the loop's time. A thread's write may wait for longer: threads wait for each other, too. */
#define LONG_NS INT64_C(2000000)
#define LONG_IN_THREAD_NS INT64_C(20000000)
#define PAUSE_NS INT64_C(1000000000)
#define PAUSE_FACTOR 50

static _Atomic int64_t paused_until;
static int64_t free_until; /* of dirty pages; belongs to the event loop */

/* How often this thread has waited. Where it lost its processor to another thread is not counted. */
static long waits(void)
{
	struct rusage used;
	return getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_nvcsw : 0;
}

static void pause_until(int64_t end)
{
	int64_t before = atomic_load(&paused_until);
	while (before < end && !atomic_compare_exchange_weak(&paused_until, &before, end))
		;
}

bool disk_waits_none(void)
{
	int64_t now = latency_counts_now();
	if (now < atomic_load_explicit(&paused_until, memory_order_relaxed))
		return false;
	if (now < free_until)
		return true;
	int64_t free_ns = dirty_pages_free_ns();
	free_until = now + free_ns;
	if (free_ns == 0)
		pause_until(now + PAUSE_NS);
	return free_ns > 0;
}

struct disk_wait disk_waits_begin(bool in_thread)
{
	return (struct disk_wait){latency_counts_now(), waits(), in_thread};
}

void disk_waits_end(const struct disk_wait *wait)
{
	int64_t now = latency_counts_now(), waited = now - wait->began;
	if (waited <= (wait->in_thread ? LONG_IN_THREAD_NS : LONG_NS) || waits() == wait->waits)
		return;
	int64_t pause = waited * PAUSE_FACTOR;
	pause_until(now + (pause > PAUSE_NS ? pause : PAUSE_NS));
}
