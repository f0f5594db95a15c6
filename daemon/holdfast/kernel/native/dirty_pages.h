/* How near the machine is to where the kernel makes writers wait (balance_dirty_pages in mm/page-writeback.c).
 *
 * As long as what is to be written out is less than the mean of the two thresholds, the kernel lets nobody wait for it. Above
 * that, one write may wait for up to 200 ms. The limits of one disk (strict_limit in /sys/class/bdi) and of one cgroup are not
 * looked at.
 */
#ifndef HOLDFAST_DIRTY_PAGES_H
#define HOLDFAST_DIRTY_PAGES_H

#include <stdint.h>

/* For how many nanoseconds from now on no write will wait for dirty pages; 0 where one may wait at once. Takes about ten
 * microseconds. Belongs to the event loop's thread. */
int64_t dirty_pages_free_ns(void);

#endif
