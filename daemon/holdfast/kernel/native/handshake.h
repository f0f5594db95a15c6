/* FUSE_INIT: the exchange at the start of a mount in which kernel and daemon agree on features.
 *
 * The kernel sends INIT only once for each mount. So the exchange is kept in a file. A daemon that takes the mount over gives
 * the kept request to its libfuse as the first one read, and does not send libfuse's reply. The file is written before the
 * kernel gets the reply. If the daemon dies before the reply, the kernel still waits for it; the next daemon then sends the
 * kept reply or, if nothing was kept, lets libfuse answer.
 *
 * All of this runs with the GIL held: pyfuse3 calls libfuse's receive and process functions with it.
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

/* Today's request has 104 bytes, and a later kernel may make it longer; one beyond this limit can't be kept. */
#define KEPT_REQUEST_LIMIT 1024
#define KEPT_REPLY_LIMIT (sizeof(struct reply_header) + sizeof(struct init_reply))

struct handshake {
	/* Set before the mount. */
	uint64_t add; /* INIT flags to set in libfuse's reply where the kernel offers them */
	char keep_path[PATH_MAX]; /* where the exchange is kept; empty: nowhere */
	bool resend; /* there was an earlier daemon: the kernel is asked to send again what it did not answer */
	bool replay; /* the earlier daemon kept the exchange below */
	bool replayed; /* libfuse has read the kept request */

	/* The exchange. */
	unsigned char request[KEPT_REQUEST_LIMIT];
	size_t request_size; /* 0: not yet, or of a size that can't be kept */
	unsigned char reply[KEPT_REPLY_LIMIT];
	size_t reply_size; /* 0: not yet */
	uint64_t awaited; /* unique of the INIT that libfuse has yet to answer; 0: none */
	uint64_t offered; /* the flags of the request */
	uint64_t agreed; /* the flags of the reply that the kernel got */
	uint32_t write_bytes; /* of the longest WRITE, by that reply */
	int keep_error; /* why the exchange could not be kept: an errno */
};

extern struct handshake handshake;

/* Forget everything, including what was set before the mount. */
void handshake_reset(void);

/* Take the exchange that an earlier daemon kept. False when it is not a valid one. */
bool handshake_take(const void *request, size_t request_size, const void *reply, size_t reply_size);

/* In a session that is taken over, give the kept request once and return its size; in all other cases return 0. */
ssize_t handshake_replay(void *buffer, size_t size);

/* Store an INIT request that was read; it has at least a header. */
void handshake_note_request(const void *request, size_t size);

/* Send the kernel the kept reply to INIT, for which it still waits. 0, or -1 and errno. */
int handshake_repeat(int fd, uint64_t unique);

/* Write libfuse's reply to INIT with the flags of `add` set, and writes limited. As writev(2). */
ssize_t handshake_reply(int fd, const struct iovec *parts, int count);

#endif
