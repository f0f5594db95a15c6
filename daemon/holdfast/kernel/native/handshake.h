/* FUSE_INIT: the one exchange at the start of a mount in which kernel and daemon agree on what they can do.
 *
 * The kernel asks once for each mount. So the exchange is kept in a file, and a daemon that takes the mount over hands the
 * kept request to its libfuse as the first thing read, and keeps libfuse's reply to itself. It is kept before the kernel
 * has its reply: a daemon that dies before leaves a kernel that still waits, and is heard by the next one, be it with the
 * kept exchange (whose reply it then gets) or without.
 *
 * All of this runs with Python's lock held: pyfuse3 calls libfuse's receive and process functions with it.
 */
#ifndef HOLDFAST_HANDSHAKE_H
#define HOLDFAST_HANDSHAKE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "wire.h"

/* Today's request has 104 bytes, and the kernel may make it longer; a longer one than this can't be kept. */
#define KEPT_REQUEST_LIMIT 1024
#define KEPT_REPLY_LIMIT (sizeof(struct reply_header) + sizeof(struct init_reply))

struct handshake {
	/* What is wanted, set before the mount. */
	uint64_t add; /* INIT flags to set in libfuse's reply where the kernel offers them */
	char keep_path[PATH_MAX]; /* where the exchange is kept; empty: nowhere */
	bool resend; /* there was an earlier daemon: have the kernel send again what it did not answer */
	bool replay; /* and it kept the exchange below */
	bool replayed; /* and libfuse has read it */

	/* What was exchanged. */
	unsigned char request[KEPT_REQUEST_LIMIT];
	size_t request_size; /* 0: not yet, or of no size that can be kept */
	unsigned char reply[KEPT_REPLY_LIMIT];
	size_t reply_size; /* 0: not yet */
	uint64_t awaited; /* unique of the INIT that libfuse has yet to answer; 0: none */
	uint64_t offered; /* the flags of the request, and of the reply that the kernel got */
	uint64_t agreed;
	int keep_error; /* why the exchange could not be kept: an errno */
};

extern struct handshake handshake;

/* Forget everything, wishes too. */
void handshake_reset(void);

/* Take the exchange that an earlier daemon kept. False when it can't be one. */
bool handshake_take(const void *request, size_t request_size, const void *reply, size_t reply_size);

/* The kept request, once, in a session that is taken over: its size; 0 in all other cases. */
ssize_t handshake_replay(void *buffer, size_t size);

/* Note an INIT request that was read, of at least a header's size. */
void handshake_note_request(const void *request, size_t size);

/* Give the kernel the kept reply to INIT, for which it still waits. 0, or -1 and errno. */
int handshake_repeat(int fd, uint64_t unique);

/* Write libfuse's reply to INIT with the flags that are wanted. As writev(2). */
ssize_t handshake_reply(int fd, const struct iovec *parts, int count);

#endif
