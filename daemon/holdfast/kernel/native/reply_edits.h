/* What is to be changed in replies to OPEN, OPENDIR and CREATE that libfuse has yet to write.
 *
 * pyfuse3 has no words for a backing id, nor for some flags. So the file system says them here, under the request's
 * unique number, and the reply gets them when it is written. A change is dropped with whatever reply the request gets.
 *
 * All of this runs with Python's lock held: pyfuse3 releases it for notifications alone.
 */
#ifndef HOLDFAST_REPLY_EDITS_H
#define HOLDFAST_REPLY_EDITS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct change {
	uint64_t unique;
	uint32_t flags; /* to be set */
	int32_t backing_id; /* 0: none, the reply opens for the daemon's own reads and writes */
};

/* Ask for `change`; it replaces an earlier one of the same request. False when memory is short. */
bool reply_edits_ask(const struct change *change);

/* Take the change for the request `unique`. False when there is none. */
bool reply_edits_take(uint64_t unique, struct change *change);

/* Write a reply with `change` made in it. As writev(2). */
ssize_t reply_edits_write(int fd, const struct iovec *parts, int count, const struct change *change);

/* Forget all changes. */
void reply_edits_reset(void);

#endif
