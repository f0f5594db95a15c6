/* Our own fuse_session_mount, which pyfuse3 calls instead of libfuse's: it mounts, and attaches device_io.h to the session. */
#ifndef HOLDFAST_MOUNTING_H
#define HOLDFAST_MOUNTING_H

#include <stdbool.h>

enum mounting_state {
	MOUNT_NONE, /* nothing was mounted since the module was configured */
	MOUNT_PLAIN, /* mounted by libfuse alone, which has no custom io */
	MOUNT_FULL, /* all requests and replies pass through the module */
	MOUNT_FAILED, /* the module could not be attached: see `error` */
};

struct mounting {
	bool wanted; /* configured; otherwise the module only passes calls on */
	enum mounting_state state;
	int fd; /* of /dev/fuse, libfuse's own; -1 while nothing is mounted */
	int error; /* why the module could not be attached: a positive errno; 0 otherwise */
	char libfuse_version[32]; /* its version; empty when not known */
};

extern struct mounting mounting;

void mounting_reset(void);

#endif
