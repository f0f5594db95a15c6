/* Whether writes wait for the disk at present.
 *
 * A write into the page cache takes microseconds, until there is so much to be written out that the kernel makes writers wait, up
 * to 200 ms at a time (balance_dirty_pages). The daemon's one loop must not wait then. No flag asks for a write that would not
 * wait, not on ext4. So the loop looks at how near the machine is to that (dirty_pages.h), and leaves all writes to threads
 * for a while before it is reached. What else lets a write wait is noticed when one has waited, on the loop or in a thread.
 */
#ifndef HOLDFAST_DISK_WAITS_H
#define HOLDFAST_DISK_WAITS_H

#include <stdbool.h>
#include <stdint.h>

struct disk_wait {
	int64_t began;
	long waits;
	bool in_thread;
};

/* Whether a write is not expected to wait: none of late did, and not much is to be written out. For the event loop's thread. */
bool disk_waits_none(void);

/* A write begins, on the event loop or in another thread, which ends it too; `disk_waits_end` judges it by whether the thread
 * gave its processor away, and for how long. */
struct disk_wait disk_waits_begin(bool in_thread);
void disk_waits_end(const struct disk_wait *wait);

#endif
