/* See mounting.h. */
#include "mounting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "handshake.h"
#include "device_io.h"
#include "libfuse.h"
#include "wire.h"

struct mounting mounting = {.fd = -1};

void mounting_reset(void)
{
	mounting = (struct mounting){.fd = -1};
}

/* Make the kernel send again the requests that a dead daemon read and did not answer. This comes first: without it, the
 * processes behind these requests would wait for ever. 0, or an errno. */
static int ask_resend(int fd)
{
	struct reply_header header = {.length = sizeof(header), .error = NOTIFY_RESEND, .unique = 0};
	return write(fd, &header, sizeof(header)) < 0 ? errno : 0;
}

/* A read must not block: if the request that made the descriptor readable is withdrawn before it is read, the whole event loop
 * would block. 0, or an errno. */
static int dont_block(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

static int attach(const struct libfuse *libfuse, struct fuse_session *session)
{
	int fd = libfuse->session_fd(session);
	int problem = -libfuse_set_io(libfuse, session, &device_io, fd);
	if (problem == 0)
		problem = dont_block(fd);
	if (problem == 0 && handshake.resend)
		problem = ask_resend(fd);
	mounting.fd = fd;
	return problem;
}

/* pyfuse3's call reaches this function because this module was loaded with RTLD_GLOBAL before pyfuse3. */
__attribute__((visibility("default"))) int fuse_session_mount(struct fuse_session *session, const char *mountpoint)
{
	struct libfuse libfuse;
	if (!libfuse_find(&libfuse, __builtin_return_address(0))) {
		fputs("holdfast: there is no libfuse behind fuse_session_mount\n", stderr);
		return -1;
	}
	int result = libfuse.session_mount(session, mountpoint);
	if (result != 0 || !mounting.wanted)
		return result;
	if (libfuse.package_version != NULL)
		snprintf(mounting.libfuse_version, sizeof(mounting.libfuse_version), "%s", libfuse.package_version());
	mounting.error = attach(&libfuse, session);
	mounting.state = mounting.error == 0 ? MOUNT_FULL : mounting.error == ENOSYS ? MOUNT_PLAIN : MOUNT_FAILED;
	/* A new mount works without the module too; one that is taken over gets no INIT without it. */
	return mounting.error != 0 && handshake.resend ? -1 : 0;
}
