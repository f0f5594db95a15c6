/* The buffer into which requests are read.
 *
 * A write of a MiB is in it with its data. Instead of copying that for a thread, `request_buffer_keep` hands the buffer itself
 * over and puts another in its place. Buffers that are given back are used again: the pages of a new one would have to be faulted
 * in, which takes longer than the copy.
 *
 * After a long write, the next request is probably another one. Then its data stays in the buffer's pipe, and is written from
 * there. Whoever else needs the data calls `request_buffer_complete`.
 *
 * All functions belong to the event loop's thread.
 */
#ifndef HOLDFAST_REQUEST_BUFFER_H
#define HOLDFAST_REQUEST_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "splice_pipe.h"

/* Only data that is longer than this stays in the pipe. */
#define LONG_WRITE ((size_t)64 * 1024)

struct request_buffer {
	struct splice_pipe pipe;
	size_t in_pipe; /* the last bytes of the request: data of a WRITE */
	unsigned char data[];
};

/* NULL before `request_buffer_reserve`. */
struct request_buffer *request_buffer_current(void);

/* The buffer's bytes, `request_buffer_size` of them; NULL and 0 before `request_buffer_reserve`. */
unsigned char *request_buffer(void);
size_t request_buffer_size(void);

/* Make room for requests of `size` bytes, which is libfuse's limit and does not change. False when out of memory. */
bool request_buffer_reserve(size_t size);

/* Forget the last request: another mount follows. */
void request_buffer_reset(void);

/* Read a request from the mount `fd`: as read(2), but the data of a WRITE may be in the pipe. */
ssize_t request_buffer_receive(int fd);

/* Bring what is in the pipe into the buffer. False if it is lost. */
bool request_buffer_complete(void);

/* Take the buffer with the present request, until `request_buffer_give_back`. NULL when out of memory: nothing has changed. */
struct request_buffer *request_buffer_keep(void);

void request_buffer_give_back(struct request_buffer *buffer);

#endif
