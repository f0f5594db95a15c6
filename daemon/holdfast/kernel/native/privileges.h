/* Whether a request takes set-id bits and capabilities away.
 *
 * With FUSE_HANDLE_KILLPRIV_V2 the kernel leaves it to the file system, and says when, for only the kernel knows whether the
 * caller may keep them (CAP_FSETID). libfuse drops what it says.
 */
#ifndef HOLDFAST_PRIVILEGES_H
#define HOLDFAST_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>

/* Say whether the request of `size` bytes, header and all, must take them away. */
bool privileges_must_go(const unsigned char *request, size_t size);

#endif
