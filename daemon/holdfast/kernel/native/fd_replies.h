/* Directories and files for which some requests are answered here, without Python, from descriptors that are lent.
 *
 * Whoever makes many files in a directory has the kernel ask, for each, what became of the directory's attributes, whether the
 * new name is free, and, with the first write, whether the file has capabilities, which a write takes away. The backing
 * directory and the backing file know. So the file system lends its descriptors.
 */
#ifndef HOLDFAST_FD_REPLIES_H
#define HOLDFAST_FD_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fd_reply_kind {
	FD_REPLY_FILE, /* GETXATTR of the capabilities that it does not have */
	FD_REPLY_DIRECTORY, /* GETATTR */
	FD_REPLY_WHOLE_DIRECTORY, /* GETATTR, and LOOKUP of names that are not in it, which nobody else makes either */
	FD_REPLY_KINDS,
};

/* Answer for `node` from the backing file or directory open at `fd`, which stays the caller's; the kernel may keep what is said
 * for so long. False when memory is short. */
bool fd_replies_add(uint64_t node, int fd, enum fd_reply_kind kind, uint64_t nanoseconds);

/* Stop that: the descriptor is about to be closed. */
void fd_replies_remove(uint64_t node);

/* Answer a request, if it is one of those. */
bool fd_replies_answer(int fd, const unsigned char *request, size_t size);

void fd_replies_reset(void);

#endif
