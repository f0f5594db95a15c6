/* The mark: which request the event loop executes, in memory that outlives the daemon.
 *
 * The kernel resends a request whose daemon has died. If that request is why it died, it would kill the next daemon too, and
 * the one after that. So its number stands in a word that belongs to Python (session/execution.py) while the loop executes it;
 * 0 at all other times, also while the request waits for something. A request that the next daemon is told to refuse gets EIO
 * when it comes again. All of this runs with the GIL held, in the thread of the event loop.
 */
#ifndef HOLDFAST_EXECUTION_MARK_H
#define HOLDFAST_EXECUTION_MARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Mark in `word` from now on. `refused` are the numbers, without UNIQUE_RESENT, of requests to refuse. The caller keeps both. */
void execution_mark_use(uint64_t *word, const uint64_t *refused, size_t refused_count);

/* Mark no more, and refuse nothing. */
void execution_mark_reset(void);

/* The loop executes this request; 0: none. */
void execution_mark_set(uint64_t unique);

/* This request has its reply: it is executed no more. */
void execution_mark_replied(uint64_t unique);

/* Whether a request that the kernel sends again must be refused. */
bool execution_mark_refuses(uint64_t unique);

#endif
