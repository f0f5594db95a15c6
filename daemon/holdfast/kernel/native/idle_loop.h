/* Requests are read and answered while the event loop sleeps.
 *
 * For one request to wake the event loop, go through pyfuse3's worker and let the loop fall asleep again costs 120 µs of
 * Python; the answer itself mostly takes less than ten. So the loop sleeps here instead: what can be answered past libfuse
 * (python_replies.h, fd_replies.h) is answered on the spot, and only a request that is libfuse's to handle is handed over.
 */
#ifndef HOLDFAST_IDLE_LOOP_H
#define HOLDFAST_IDLE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Serve the mount at `fd` for at most `seconds`, or until the epoll descriptor `events` has something for the loop, a request
 * is libfuse's, or `idle_loop_interrupt` was called. The eventfd `handed_over` becomes readable as long as such a request waits to
 * be taken. True when the loop must not sleep any more, though `events` need not be readable. With Python's lock held. */
bool idle_loop_serve(int fd, int events, int handed_over, double seconds);

/* A task was scheduled: the loop must see to it. */
void idle_loop_interrupt(void);

/* Take the request that was handed over: as read(2). False when there is none. */
bool idle_loop_take(void *buffer, size_t size, ssize_t *got);

/* How large a buffer libfuse reads into: until that is known, `idle_loop_serve` does nothing. False when memory is short. */
bool idle_loop_note_size(size_t size);

void idle_loop_reset(void);

#endif
