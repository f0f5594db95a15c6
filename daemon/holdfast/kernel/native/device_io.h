/* Every byte between libfuse and /dev/fuse: requests are noted and counted as they are read, replies as they are written. */
#ifndef HOLDFAST_DEVICE_IO_H
#define HOLDFAST_DEVICE_IO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "libfuse.h"
#include "wire.h"

extern const struct custom_io io;

/* How many requests of each kind were read (those the table has no place for are counted under 0), and replies written. */
extern atomic_uint_least64_t io_requests[OPCODE_LIMIT];
extern atomic_uint_least64_t io_replies;
extern atomic_uint_least64_t io_notifications;

/* Read the next request that is libfuse's to handle, and answer those before it that are not: as read(2). EINTR, on which
 * pyfuse3 waits again, when there is none. `patient` is to look a moment longer after an answer. */
ssize_t io_next(int fd, void *buffer, size_t size, bool patient);

/* Count a reply that does not come from libfuse. */
void io_count_reply(void);

/* The request read last. pyfuse3 goes from the read to the handler's first await in one step, with Python's lock held: until
 * that await this is the handler's own request. */
uint64_t io_current(void);

/* Whether it takes set-id bits and capabilities away. */
bool io_current_drops(void);

void io_reset(void);

#endif
