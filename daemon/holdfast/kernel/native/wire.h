/* The part of the FUSE protocol that the module reads and writes.
 *
 * Source: include/uapi/linux/fuse.h of Linux 6.9 (protocol 7.40). It is restated here because distributions build with older
 * headers, which lack the features this module is for. Numbers on the wire are in the machine's byte order.
 */
#ifndef HOLDFAST_WIRE_H
#define HOLDFAST_WIRE_H

#include <stdint.h>
#include <sys/ioctl.h>

enum opcode {
	OPCODE_LOOKUP = 1,
	OPCODE_FORGET = 2,
	OPCODE_GETATTR = 3,
	OPCODE_SETATTR = 4,
	OPCODE_OPEN = 14,
	OPCODE_READ = 15,
	OPCODE_WRITE = 16,
	OPCODE_SETXATTR = 21,
	OPCODE_GETXATTR = 22,
	OPCODE_INIT = 26,
	OPCODE_READDIR = 28,
	OPCODE_CREATE = 35,
	OPCODE_BATCH_FORGET = 42,
	OPCODE_FALLOCATE = 43,
	OPCODE_READDIRPLUS = 44,
	OPCODE_LIMIT = 64,
};

enum notification { NOTIFY_RESEND = 7 };

/* Set in the unique number of a request that the kernel sends again. */
#define UNIQUE_RESENT (UINT64_C(1) << 63)

/* Flags of the INIT request and reply; those above bit 31 are valid only with INIT_EXTENDED. Others are set by the Python side
 * (kernel/protocol.py). */
#define INIT_AUTO_INVALIDATE (UINT64_C(1) << 12)
#define INIT_WRITEBACK_CACHE (UINT64_C(1) << 16)
#define INIT_EXPLICIT_INVALIDATE (UINT64_C(1) << 25)
#define INIT_LONG_SETXATTR (UINT64_C(1) << 29)
#define INIT_EXTENDED (UINT64_C(1) << 30)
#define INIT_PASSTHROUGH (UINT64_C(1) << 37)

/* The stacking depth of this file system: 1 allows backing files on any disk file system, but not on one that is stacked
 * itself (overlayfs). */
#define STACK_DEPTH 1

/* Flags of the reply to OPEN, OPENDIR and CREATE. */
#define OPEN_NOFLUSH (UINT32_C(1) << 5)
#define OPEN_PARALLEL_DIRECT_WRITES (UINT32_C(1) << 6)
#define OPEN_PASSTHROUGH (UINT32_C(1) << 7)

/* The flags allowed with OPEN_PASSTHROUGH; for any other the open gets EIO (fs/fuse/iomode.c in the kernel). FOPEN_DIRECT_IO
 * is allowed too, but would send reads and writes to the daemon. */
#define OPEN_WITH_PASSTHROUGH (OPEN_PASSTHROUGH | OPEN_NOFLUSH | OPEN_PARALLEL_DIRECT_WRITES)

/* Flags of requests that must remove set-id bits and capabilities. SETATTR_CHANGES are the flags that change anything: mode,
 * owner, group, size, and the times (bits 0 to 5, 7, 8 and 10). */
#define SETATTR_DROP (UINT32_C(1) << 11)
#define SETATTR_CHANGES UINT32_C(0x5bf)
#define OPENING_DROPS (UINT32_C(1) << 0)
#define WRITING_DROPS (UINT32_C(1) << 2)

struct request_header {
	uint32_t length;
	uint32_t opcode;
	uint64_t unique; /* with UNIQUE_RESENT if the kernel sends the request again */
	uint64_t node;
	uint32_t uid;
	uint32_t gid;
	uint32_t pid;
	uint16_t extensions;
	uint16_t padding;
};

struct reply_header {
	uint32_t length;
	int32_t error; /* a negative errno; of a notification, its code */
	uint64_t unique; /* that of the request; 0 makes it a notification */
};

struct init_request {
	uint32_t major;
	uint32_t minor;
	uint32_t read_ahead;
	uint32_t flags;
	uint32_t more_flags;
	uint32_t unused[11];
};

struct init_reply {
	uint32_t major;
	uint32_t minor;
	uint32_t read_ahead;
	uint32_t flags;
	uint16_t background;
	uint16_t congestion;
	uint32_t write_bytes;
	uint32_t time_granularity;
	uint16_t pages;
	uint16_t alignment;
	uint32_t more_flags;
	uint32_t stack_depth;
	uint32_t unused[6];
};

struct open_reply {
	uint64_t handle;
	uint32_t flags;
	int32_t backing_id; /* "padding" before protocol 7.40 */
};

/* Of READ and of WRITE, which the data follows. The flags are those of a read or a write, not of the open file. */
struct data_request {
	uint64_t handle;
	uint64_t offset;
	uint32_t length;
	uint32_t flags;
	uint64_t lock_owner;
	uint32_t open_flags;
	uint32_t padding;
};

#define DATA_AT (sizeof(struct request_header) + sizeof(struct data_request))

struct write_reply {
	uint32_t length;
	uint32_t padding;
};

struct fallocate_request {
	uint64_t handle;
	uint64_t offset;
	uint64_t length;
	uint32_t mode;
	uint32_t padding;
};

/* The name, ended by a zero byte, and the value follow. The last two fields exist only if INIT_LONG_SETXATTR is agreed on. */
struct setxattr_request {
	uint32_t value_bytes;
	uint32_t flags;
	uint32_t more_flags;
	uint32_t padding;
};
#define SHORT_SETXATTR_BYTES 8

/* The name, ended by a zero byte, follows. */
struct getxattr_request {
	uint32_t value_bytes;
	uint32_t padding;
};

struct attributes {
	uint64_t inode;
	uint64_t size;
	uint64_t blocks;
	uint64_t accessed;
	uint64_t modified;
	uint64_t changed;
	uint32_t accessed_ns;
	uint32_t modified_ns;
	uint32_t changed_ns;
	uint32_t mode;
	uint32_t links;
	uint32_t uid;
	uint32_t gid;
	uint32_t device;
	uint32_t block_bytes;
	uint32_t flags;
};

/* The reply to GETATTR; the kernel may cache it for `valid` seconds and `valid_ns` nanoseconds. */
struct attributes_reply {
	uint64_t valid;
	uint32_t valid_ns;
	uint32_t padding;
	struct attributes attributes;
};

/* The reply to LOOKUP; node 0: there is no such name. */
struct entry_reply {
	uint64_t node;
	uint64_t generation;
	uint64_t entry_valid;
	uint64_t attributes_valid;
	uint32_t entry_valid_ns;
	uint32_t attributes_valid_ns;
	struct attributes attributes;
};

/* The reply to READDIR is a sequence of these, each followed by its name and padded with zero bytes to a multiple of 8. */
struct directory_entry {
	uint64_t inode;
	uint64_t offset; /* of the next entry */
	uint32_t name_bytes;
	uint32_t kind; /* a DT_* of readdir(3) */
};

/* What registers a backing file with the mount's descriptor, and what closes its id. */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* The reply to CREATE: an entry_reply, which is not edited, and an open_reply. */
#define ENTRY_BYTES sizeof(struct entry_reply)

_Static_assert(sizeof(struct request_header) == 40, "struct fuse_in_header");
_Static_assert(sizeof(struct reply_header) == 16, "struct fuse_out_header");
_Static_assert(sizeof(struct init_request) == 64, "struct fuse_init_in");
_Static_assert(sizeof(struct init_reply) == 64, "struct fuse_init_out");
_Static_assert(sizeof(struct open_reply) == 16, "struct fuse_open_out");
_Static_assert(sizeof(struct attributes_reply) == 104, "struct fuse_attr_out");
_Static_assert(sizeof(struct entry_reply) == 128, "struct fuse_entry_out");
_Static_assert(sizeof(struct directory_entry) == 24, "struct fuse_dirent");
_Static_assert(sizeof(struct backing_map) == 16, "struct fuse_backing_map");
_Static_assert(sizeof(struct data_request) == 40, "struct fuse_read_in, struct fuse_write_in");
_Static_assert(sizeof(struct write_reply) == 8, "struct fuse_write_out");
_Static_assert(sizeof(struct fallocate_request) == 32, "struct fuse_fallocate_in");
_Static_assert(sizeof(struct setxattr_request) == 16, "struct fuse_setxattr_in");
_Static_assert(sizeof(struct getxattr_request) == 8, "struct fuse_getxattr_in");

#endif
