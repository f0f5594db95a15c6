/* The read and write functions that libfuse uses for /dev/fuse: all requests and replies pass through here.
 *
 * Requests are counted as they are read; those that can be answered without libfuse are answered here (native_replies.h, then
 * python_replies.h). Replies are counted, and some are edited, as they are written (handshake.h, reply_edits.h). */
#ifndef HOLDFAST_DEVICE_IO_H
#define HOLDFAST_DEVICE_IO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "libfuse.h"
#include "wire.h"

extern const struct custom_io device_io;

/* The number of requests read by opcode (those beyond the table are counted under 0), and of replies and notifications. */
extern atomic_uint_least64_t device_io_requests[OPCODE_LIMIT];
extern atomic_uint_least64_t device_io_replies;
extern atomic_uint_least64_t device_io_notifications;

/* Read the next request that libfuse must handle into request_buffer(); answer those before it that it need not. As read(2), with
 * EINTR when there is no request, on which pyfuse3 waits again. With `poll_again`, poll a moment longer after an answer. */
ssize_t device_io_next(int fd, bool poll_again);

/* Count a reply that was not written by libfuse. */
void device_io_count_reply(void);

/* The unique number of the request read last. pyfuse3 goes from the read to the handler's first await in one step, with the
 * GIL held: until that await it is the number of the handler's own request. */
uint64_t device_io_current(void);

/* Whether that request removes set-id bits and capabilities. */
bool device_io_current_drops(void);

/* The user id of its caller, and its process id in the daemon's namespace. */
uint32_t device_io_current_user(void);
uint32_t device_io_current_process(void);

void device_io_reset(void);

#endif
