/* Immediate replies from Python, without libfuse and pyfuse3.
 *
 * A request that needs neither a store nor a wait spends most of its time in libfuse, pyfuse3 and the event loop. So the file
 * system can set a function, the handler, that is called first for the opcodes it names. The handler gets the request as
 * numbers and bytes. It returns the reply, or declines: then the request goes to libfuse. It is not called for requests that the
 * kernel sends again: an earlier daemon may have carried them out. Listings are an exception, because they change nothing, and
 * libfuse would use other offsets. All of this runs with the GIL held, in the step of the event loop in which pyfuse3 reads, or
 * while the loop would sleep (event_loop_wait.h).
 */
#ifndef HOLDFAST_PYTHON_REPLIES_H
#define HOLDFAST_PYTHON_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One turn of the reader: it answers the pending requests, and polls a moment longer for the next. Times are CLOCK_MONOTONIC
 * in nanoseconds. */
struct reply_turn {
	int64_t began;
	int64_t answered; /* when the last request was answered in this turn; 0: none yet */
	bool waits; /* the last request has no reply yet: a thread or the event loop gives it */
	bool yields; /* a thread or the event loop must finish a request, and needs the GIL for it: don't poll */
};

void python_replies_begin(struct reply_turn *turn);

/* Call the handler. True: the request has its reply or will get it later, or takes none. False: libfuse must handle it. */
bool python_replies_answer(struct reply_turn *turn, int fd, const unsigned char *request, size_t size);

/* Note that a request was answered, of this kind and read at `read`. False when the turn has lasted long enough, and the event loop must run. */
bool python_replies_go_on(struct reply_turn *turn, uint32_t opcode, int64_t read);

/* There is no request. True: read again. A caller mostly sends its next request at once; if this side is still awake, both
 * save a wake-up, and this one saves two rounds of the event loop. False: stop polling. */
bool python_replies_poll_again(const struct reply_turn *turn);

/* Reply EIO, and tell the function for refusals of the request. */
void python_replies_refuse(int fd, const unsigned char *request, size_t size);

/* Write a reply. `error` is a positive errno, or 0: then the body follows. */
void python_replies_reply(int fd, uint64_t unique, int error, const void *body, size_t size);

void python_replies_reset(void);

#endif
