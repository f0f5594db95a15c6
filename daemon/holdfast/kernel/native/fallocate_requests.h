/* Requests that pyfuse3 has no handler for, in the words of one that it has.
 *
 * FALLOCATE comes to the file system as SETXATTR with an empty name, which no system call can have (setxattr(2)), and the
 * request's own body as the value. Both are answered by an error number alone, so the reply needs no translation.
 */
#ifndef HOLDFAST_FALLOCATE_REQUESTS_H
#define HOLDFAST_FALLOCATE_REQUESTS_H

#include <stddef.h>
#include <sys/types.h>

/* Translate the request of `got` bytes in a buffer of `size`, if it needs that. The size that it has now. */
ssize_t fallocate_requests_apply(unsigned char *buffer, ssize_t got, size_t size);

#endif
