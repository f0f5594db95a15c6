/* Replies in C, without Python, from the descriptor of a backing file or directory.
 *
 * When a process creates many files in a directory, the kernel sends for each a GETATTR of the directory, a LOOKUP of the new
 * name and, with the first write, a GETXATTR of the file's capabilities, which a write removes. The backing directory and the
 * backing file have the answers. So the file system registers their descriptors here, and those of files whose data it serves.
 */
#ifndef HOLDFAST_NATIVE_REPLIES_H
#define HOLDFAST_NATIVE_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum native_reply_kind {
	NATIVE_REPLY_FILE, /* GETXATTR of its capabilities, if it has none */
	NATIVE_REPLY_DIRECTORY, /* GETATTR */
	NATIVE_REPLY_STORE_DIRECTORY, /* GETATTR, as fs/inodes/attributes.py shows it, until what the kernel caches expires */
	NATIVE_REPLY_WHOLE_DIRECTORY, /* GETATTR, and LOOKUP of names that are not in it: they exist nowhere else either */
	NATIVE_REPLY_DATA, /* what NATIVE_REPLY_FILE answers, and READ and WRITE (file_data.h) */
	NATIVE_REPLY_DATA_AS_NOBODY, /* the same; writes as an ordinary user */
	NATIVE_REPLY_KINDS,
};

/* Answer for `node` from the backing file or directory open at `fd`, which the caller keeps. The kernel may cache the answers
 * for `nanoseconds`. They are counted for `zone` (latency_counts.h). False when out of memory. */
bool native_replies_add(uint64_t node, int fd, enum native_reply_kind kind, uint64_t nanoseconds, uint32_t zone);

/* Whether to answer at all: not while somebody wants to see each request. */
void native_replies_enable(bool enabled);

/* Stop answering for `node`: its descriptor is about to be closed. */
void native_replies_remove(uint64_t node);

/* Answer a request if it can be answered from a descriptor. Returns whether it was, or, with `later` set, will be by a thread. */
bool native_replies_answer(int fd, const unsigned char *request, size_t size, bool *later);

void native_replies_reset(void);

#endif
