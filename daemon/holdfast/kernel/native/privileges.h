/* Whether a request removes set-id bits and capabilities.
 *
 * With FUSE_HANDLE_KILLPRIV_V2 the kernel leaves the removal to the file system, and says when: only the kernel knows whether
 * the caller may keep them (CAP_FSETID). libfuse ignores these flags of the requests, so they are read here.
 */
#ifndef HOLDFAST_PRIVILEGES_H
#define HOLDFAST_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>

/* Return whether the request of `size` bytes, header included, must remove them. */
bool privileges_dropped_by(const unsigned char *request, size_t size);

#endif
