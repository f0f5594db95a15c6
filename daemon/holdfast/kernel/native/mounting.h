/* fuse_session_mount, taken over from libfuse: where a session gets its way to the kernel. */
#ifndef HOLDFAST_MOUNTING_H
#define HOLDFAST_MOUNTING_H

#include <stdbool.h>

enum mounting_state {
	MOUNT_NONE, /* nothing was mounted since the module was configured */
	MOUNT_PLAIN, /* mounted by libfuse alone: it has no custom io */
	MOUNT_FULL, /* all requests and replies come past the module */
	MOUNT_FAILED, /* see error */
};

struct mounting {
	bool wanted; /* configured; otherwise the module only passes calls on */
	enum mounting_state state;
	int fd; /* of /dev/fuse, libfuse's own; -1 while nothing is mounted */
	int error; /* of a takeover that failed: a positive errno */
	char libfuse[32]; /* its version; empty when not known */
};

extern struct mounting mounting;

void mounting_reset(void);

#endif
