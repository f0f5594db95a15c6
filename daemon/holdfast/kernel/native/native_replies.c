/* See native_replies.h. */
#include "native_replies.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#include "file_data.h"
#include "latency_counts.h"
#include "python_replies.h"
#include "wire.h"

#define SECOND UINT64_C(1000000000)
#define CAPABILITIES "security.capability"
#define STORE_DIRECTORY_BYTES 4096
#define BLOCK_BYTES 512

struct native_reply {
	uint64_t node; /* 0: the slot is free */
	uint64_t nanoseconds;
	uint64_t until; /* by now_ns; 0: for good */
	int fd;
	uint32_t zone;
	enum native_reply_kind kind;
};

/* Open addressing with linear probing; never more than half full. Users choose the numbers, by which of their files they open:
 * where these meet in the table must not be known to them, or each removal would move thousands of replies. */
static struct native_reply *table;
static size_t slots; /* a power of two, or 0 */
static size_t used;
static uint64_t seed;
static bool is_enabled = true;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* By the finalizer of SplitMix64, in which each bit of the number changes half of those of the result. */
static size_t slot_of(uint64_t node)
{
	uint64_t mixed = node ^ seed;
	mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (size_t)(mixed ^ (mixed >> 31)) & (slots - 1);
}

/* The slot of `node`, or the free slot where it belongs. */
static struct native_reply *find(uint64_t node)
{
	size_t slot = slot_of(node);
	while (table[slot].node != 0 && table[slot].node != node)
		slot = (slot + 1) & (slots - 1);
	return &table[slot];
}

static bool grow(void)
{
	struct native_reply *old = table;
	size_t old_slots = slots;
	struct native_reply *larger = calloc(slots ? slots * 2 : 64, sizeof(*larger));
	if (larger == NULL)
		return false;
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = now_ns();
	table = larger;
	slots = slots ? slots * 2 : 64;
	for (size_t i = 0; i < old_slots; i++)
		if (old[i].node != 0)
			*find(old[i].node) = old[i];
	free(old);
	return true;
}

bool native_replies_add(uint64_t node, int fd, enum native_reply_kind kind, uint64_t nanoseconds, uint32_t zone)
{
	if (used * 2 >= slots && !grow())
		return false;
	struct native_reply *slot = find(node);
	used += slot->node == 0;
	*slot = (struct native_reply){.node = node, .nanoseconds = nanoseconds, .fd = fd, .zone = zone, .kind = kind};
	if (kind == NATIVE_REPLY_STORE_DIRECTORY)
		slot->until = now_ns() + nanoseconds;
	return true;
}

void native_replies_remove(uint64_t node)
{
	if (used == 0 || find(node)->node == 0)
		return;
	struct native_reply *hole = find(node);
	hole->node = 0;
	used--;
	/* Those behind it in the same run may belong further ahead now: insert them again. */
	for (size_t slot = (size_t)(hole - table + 1) & (slots - 1); table[slot].node != 0; slot = (slot + 1) & (slots - 1)) {
		struct native_reply moved = table[slot];
		table[slot].node = 0;
		*find(moved.node) = moved;
	}
}

void native_replies_reset(void)
{
	free(table);
	table = NULL;
	slots = used = 0;
	is_enabled = true;
}

void native_replies_enable(bool enabled)
{
	is_enabled = enabled;
}

static void fill(struct attributes *attributes, uint64_t node, const struct stat *stat)
{
	*attributes = (struct attributes){
		.inode = node,
		.size = (uint64_t)stat->st_size,
		.blocks = (uint64_t)stat->st_blocks,
		.accessed = (uint64_t)stat->st_atim.tv_sec,
		.modified = (uint64_t)stat->st_mtim.tv_sec,
		.changed = (uint64_t)stat->st_ctim.tv_sec,
		.accessed_ns = (uint32_t)stat->st_atim.tv_nsec,
		.modified_ns = (uint32_t)stat->st_mtim.tv_nsec,
		.changed_ns = (uint32_t)stat->st_ctim.tv_nsec,
		.mode = stat->st_mode,
		.links = (uint32_t)stat->st_nlink,
		.uid = stat->st_uid,
		.gid = stat->st_gid,
		.block_bytes = (uint32_t)stat->st_blksize,
	};
}

static bool answer_getattr(int fd, const struct request_header *header, const struct native_reply *directory)
{
	struct stat stat;
	if ((directory->until != 0 && now_ns() >= directory->until) || fstat(directory->fd, &stat) != 0)
		return false;
	struct attributes_reply reply = {.valid = directory->nanoseconds / SECOND,
					 .valid_ns = (uint32_t)(directory->nanoseconds % SECOND)};
	fill(&reply.attributes, header->node, &stat);
	if (directory->kind == NATIVE_REPLY_STORE_DIRECTORY) {
		reply.attributes.changed = reply.attributes.modified;
		reply.attributes.changed_ns = reply.attributes.modified_ns;
		reply.attributes.size = STORE_DIRECTORY_BYTES;
		reply.attributes.blocks = STORE_DIRECTORY_BYTES / BLOCK_BYTES;
	}
	python_replies_reply(fd, header->unique, 0, &reply, sizeof(reply));
	return true;
}

static bool answer_lookup(int fd, const struct request_header *header, const struct native_reply *directory, const char *name)
{
	struct stat stat;
	if (fstatat(directory->fd, name, &stat, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return false;
	struct entry_reply reply = {.entry_valid = directory->nanoseconds / SECOND,
				    .entry_valid_ns = (uint32_t)(directory->nanoseconds % SECOND)};
	python_replies_reply(fd, header->unique, 0, &reply, sizeof(reply));
	return true;
}

static bool answer_getxattr(int fd, const struct request_header *header, const struct native_reply *file, const char *name)
{
	if (strcmp(name, CAPABILITIES) != 0 || fgetxattr(file->fd, name, NULL, 0) >= 0 || errno != ENODATA)
		return false;
	python_replies_reply(fd, header->unique, ENODATA, NULL, 0);
	return true;
}

static bool is_of_file(const struct native_reply *reply)
{
	return reply->kind == NATIVE_REPLY_FILE || reply->kind == NATIVE_REPLY_DATA || reply->kind == NATIVE_REPLY_DATA_AS_NOBODY;
}

static bool answer_data(int fd, const unsigned char *request, size_t size, const struct native_reply *reply, bool *later)
{
	struct backing_file file = {reply->fd, reply->zone, reply->kind == NATIVE_REPLY_DATA_AS_NOBODY};
	return reply->kind >= NATIVE_REPLY_DATA && file_data_answer(fd, request, size, &file, later);
}

bool native_replies_answer(int fd, const unsigned char *request, size_t size, bool *later)
{
	struct request_header header;
	memcpy(&header, request, sizeof(header));
	if (used == 0 || !is_enabled)
		return false;
	const struct native_reply *native_reply = find(header.node);
	const char *rest = (const char *)request + sizeof(header);
	size_t length = size - sizeof(header);
	if (native_reply->node == 0)
		return false;
	latency_counts_set_zone(native_reply->zone);
	if (header.opcode == OPCODE_READ || header.opcode == OPCODE_WRITE)
		return answer_data(fd, request, size, native_reply, later);
	if (header.opcode == OPCODE_GETATTR && !is_of_file(native_reply))
		return answer_getattr(fd, &header, native_reply);
	if (length == 0 || rest[length - 1] != '\0')
		return false;
	if (header.opcode == OPCODE_LOOKUP && native_reply->kind == NATIVE_REPLY_WHOLE_DIRECTORY)
		return answer_lookup(fd, &header, native_reply, rest);
	if (header.opcode == OPCODE_GETXATTR && is_of_file(native_reply) && length > sizeof(struct getxattr_request))
		return answer_getxattr(fd, &header, native_reply, rest + sizeof(struct getxattr_request));
	return false;
}
