/* Translating FALLOCATE, for which pyfuse3 has no handler, into SETXATTR, for which it has one.
 *
 * The file system gets a SETXATTR with an empty name, which no system call can send (setxattr(2)), and the body of the
 * FALLOCATE as the value. The reply to both is an errno only, so it needs no translation.
 */
#ifndef HOLDFAST_FALLOCATE_REQUESTS_H
#define HOLDFAST_FALLOCATE_REQUESTS_H

#include <stddef.h>
#include <sys/types.h>

/* Translate the request of `got` bytes in a buffer of `size` bytes if it is a FALLOCATE. Returns its new size. */
ssize_t fallocate_requests_apply(unsigned char *buffer, ssize_t got, size_t size);

#endif
