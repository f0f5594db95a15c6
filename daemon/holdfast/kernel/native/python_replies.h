/* Requests that Python answers at once, past libfuse and pyfuse3.
 *
 * Of a request that needs neither a store nor a wait, most of the time goes into libfuse, pyfuse3 and the event loop. So the
 * file system may name a function that is asked first, for the kinds of requests that it names. It gets the request as
 * numbers and bytes, and gives the reply, or declines: then the request goes its usual way. All of it runs with Python's lock
 * held: in the step of the event loop in which pyfuse3 reads, or while the loop would sleep (idle_loop.h).
 */
#ifndef HOLDFAST_PYTHON_REPLIES_H
#define HOLDFAST_PYTHON_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One turn of the reader: it answers what is there, and a moment longer. */
struct reply_turn {
	int64_t began; /* nanoseconds, as `answered` */
	int64_t answered; /* when it last answered a request by itself; 0: not yet */
	bool others_go_on; /* threads, or the event loop, are to answer what was taken on: they need Python's lock */
};

void python_replies_begin(struct reply_turn *turn);

/* Ask the function. True: the request has its reply, or will get it, if it takes one. */
bool python_replies_answer(struct reply_turn *turn, int fd, const unsigned char *request, size_t size);

/* A request was answered. False when others must have their turn now. */
bool python_replies_answered(struct reply_turn *turn);

/* There is no request. True: look again, for who asks for one thing mostly asks for the next at once, and to be found awake
 * saves both sides a wake-up and this one two rounds of the event loop. False: give it up. */
bool python_replies_looks_again(const struct reply_turn *turn);

/* Reply to a request that the function has taken on and not answered at once. `error` is a positive errno or 0. */
void python_replies_reply(int fd, uint64_t unique, int error, const void *body, size_t size);

void python_replies_reset(void);

#endif
