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

/* Have the kernel send again what a dead daemon read and did not answer. Before anything else: those who wait for such an
 * answer would wait for ever. */
static int ask_resend(int fd)
{
	struct reply_header header = {.length = sizeof(header), .error = NOTIFY_RESEND, .unique = 0};
	return write(fd, &header, sizeof(header)) < 0 ? errno : 0;
}

/* A read must not wait: the request that made the descriptor readable may be withdrawn before it is read, and the whole
 * event loop would wait with it. */
static int dont_block(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

static int attach(const struct library *library, struct fuse_session *session)
{
	int fd = library->session_fd(session);
	int problem = -library_set_io(library, session, &io, fd);
	if (problem == 0)
		problem = dont_block(fd);
	if (problem == 0 && handshake.resend)
		problem = ask_resend(fd);
	mounting.fd = fd;
	return problem;
}

/* pyfuse3's call comes here, because this module was loaded before it with RTLD_GLOBAL. */
__attribute__((visibility("default"))) int fuse_session_mount(struct fuse_session *session, const char *mountpoint)
{
	struct library library;
	if (!library_find(&library, __builtin_return_address(0))) {
		fputs("holdfast: there is no libfuse behind fuse_session_mount\n", stderr);
		return -1;
	}
	int result = library.session_mount(session, mountpoint);
	if (result != 0 || !mounting.wanted)
		return result;
	if (library.package_version != NULL)
		snprintf(mounting.libfuse, sizeof(mounting.libfuse), "%s", library.package_version());
	mounting.error = attach(&library, session);
	mounting.state = mounting.error == 0 ? MOUNT_FULL : mounting.error == ENOSYS ? MOUNT_PLAIN : MOUNT_FAILED;
	/* A mount of our own serves without the module too; one that was taken over gets no INIT without it. */
	return mounting.error != 0 && handshake.resend ? -1 : 0;
}
