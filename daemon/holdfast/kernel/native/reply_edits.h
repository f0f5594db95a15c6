/* Edits of replies to OPEN, OPENDIR and CREATE, made when libfuse writes them.
 *
 * pyfuse3 can't set a backing id, nor some of the flags. So the file system registers them here under the request's unique
 * number, and they are put into the reply when it is written. Any reply to the request, an error too, removes the edit.
 *
 * All of this runs with the GIL held: pyfuse3 releases it only for notifications.
 */
#ifndef HOLDFAST_REPLY_EDITS_H
#define HOLDFAST_REPLY_EDITS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct reply_edit {
	uint64_t unique;
	uint32_t flags; /* to be set */
	int32_t backing_id; /* 0: none, the daemon reads and writes */
};

/* Add `edit`; it replaces an earlier one of the same request. False when out of memory. */
bool reply_edits_add(const struct reply_edit *edit);

/* Remove the edit for the request `unique` and return it in `edit`. False when there is none. */
bool reply_edits_take(uint64_t unique, struct reply_edit *edit);

/* Write a reply with `edit` applied. As writev(2). */
ssize_t reply_edits_write(int fd, const struct iovec *parts, int count, const struct reply_edit *edit);

/* Forget all edits. */
void reply_edits_reset(void);

#endif
