/* See privileges.h. */
#include "privileges.h"

#include <stdint.h>
#include <string.h>

#include "wire.h"

/* Offsets of the flags in a request's body. */
enum {
	SETATTR_FLAGS = 0, /* struct fuse_setattr_in.valid */
	OPEN_FLAGS = 4, /* struct fuse_open_in.open_flags */
	CREATE_FLAGS = 12, /* struct fuse_create_in.open_flags */
	WRITE_FLAGS = 20, /* struct fuse_write_in.write_flags */
};

static uint32_t flags_at(const unsigned char *request, size_t size, size_t offset)
{
	uint32_t flags = 0;
	if (size >= sizeof(struct request_header) + offset + sizeof(flags))
		memcpy(&flags, request + sizeof(struct request_header) + offset, sizeof(flags));
	return flags;
}

bool privileges_dropped_by(const unsigned char *request, size_t size)
{
	struct request_header header;
	uint32_t flags;
	memcpy(&header, request, sizeof(header));
	switch (header.opcode) {
	case OPCODE_SETATTR:
		/* One that changes nothing is sent before a write that removes them. */
		flags = flags_at(request, size, SETATTR_FLAGS);
		return flags & SETATTR_DROP || !(flags & SETATTR_CHANGES);
	case OPCODE_OPEN:
		return flags_at(request, size, OPEN_FLAGS) & OPENING_DROPS;
	case OPCODE_CREATE:
		return flags_at(request, size, CREATE_FLAGS) & OPENING_DROPS;
	case OPCODE_WRITE:
		return flags_at(request, size, WRITE_FLAGS) & WRITING_DROPS;
	default:
		return false;
	}
}
