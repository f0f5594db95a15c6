/* Serving requests while Python's event loop would sleep.
 *
 * To wake the event loop for a request, run pyfuse3's worker and go back to sleep takes 120 µs of Python; the answer itself
 * mostly takes less than ten. So the loop sleeps here instead: requests that can be answered without libfuse
 * (python_replies.h, native_replies.h) are answered here, and only a request that libfuse must handle is handed over.
 */
#ifndef HOLDFAST_EVENT_LOOP_WAIT_H
#define HOLDFAST_EVENT_LOOP_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Serve the mount at `fd` for at most `seconds`, or until the epoll descriptor `events` is readable, there is a request for
 * libfuse, or `event_loop_wait_interrupt` was called. The eventfd `handed_over` is readable as long as such a request waits to be
 * taken. True when the event loop must not sleep any longer, although `events` need not be readable. With the GIL held. */
bool event_loop_wait_serve(int fd, int events, int handed_over, double seconds);

/* A task was scheduled: make event_loop_wait_serve return, so that the event loop can run it. */
void event_loop_wait_interrupt(void);

/* Take the request that was handed over, in request_buffer(): `got` and errno are as of read(2). False when there is none. */
bool event_loop_wait_take(ssize_t *got);

void event_loop_wait_reset(void);

#endif
