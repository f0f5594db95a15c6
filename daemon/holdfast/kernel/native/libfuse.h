/* The libfuse that pyfuse3 is linked to, found at run time when pyfuse3 calls into this module.
 *
 * The declarations are not taken from libfuse's headers: the module is built once and works with the libfuse of the process,
 * libfuse3.so.3 or libfuse3.so.4.
 */
#ifndef HOLDFAST_LIBFUSE_H
#define HOLDFAST_LIBFUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct fuse_session;

/* struct fuse_custom_io of libfuse 3.13. Without the two functions for splice libfuse does not splice. 3.17 adds a function
 * at the end, and gets the size of ours. */
struct custom_io {
	ssize_t (*writev)(int fd, struct iovec *parts, int count, void *user_data);
	ssize_t (*read)(int fd, void *buffer, size_t size, void *user_data);
	void *splice_receive;
	void *splice_send;
};

struct libfuse {
	int (*session_mount)(struct fuse_session *session, const char *mountpoint);
	int (*session_fd)(struct fuse_session *session);
	int (*custom_io)(struct fuse_session *session, const struct custom_io *io, int fd); /* 3.13 to 3.16, or NULL */
	int (*custom_io_sized)(struct fuse_session *session, const struct custom_io *io, size_t size, int fd); /* 3.17+, or NULL */
	const char *(*package_version)(void);
};

/* Find the libfuse of the calling library, whose code is at `caller`. False when there is none. */
bool libfuse_find(struct libfuse *libfuse, void *caller);

/* Make `session` read and write through `io`. 0, or a negative errno: -ENOSYS when libfuse is older than 3.13. */
int libfuse_set_io(const struct libfuse *libfuse, struct fuse_session *session, const struct custom_io *io, int fd);

#endif
