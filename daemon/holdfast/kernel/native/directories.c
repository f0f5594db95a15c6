/* See directories.h. */
#include "directories.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "direct.h"
#include "wire.h"

struct directory {
	uint64_t node; /* 0: the place is free */
	uint64_t seconds;
	int fd;
};

/* Open addressing with linear probing; never more than half full. */
static struct directory *table;
static size_t places; /* a power of two, or 0 */
static size_t used;

static size_t place_of(uint64_t node)
{
	return (size_t)((node * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (places - 1);
}

/* The place that has `node`, or the free one where it belongs. */
static struct directory *find(uint64_t node)
{
	size_t place = place_of(node);
	while (table[place].node != 0 && table[place].node != node)
		place = (place + 1) & (places - 1);
	return &table[place];
}

static bool grow(void)
{
	struct directory *old = table;
	size_t old_places = places;
	struct directory *larger = calloc(places ? places * 2 : 64, sizeof(*larger));
	if (larger == NULL)
		return false;
	table = larger;
	places = places ? places * 2 : 64;
	for (size_t i = 0; i < old_places; i++)
		if (old[i].node != 0)
			*find(old[i].node) = old[i];
	free(old);
	return true;
}

bool directories_lend(uint64_t node, int fd, uint64_t seconds)
{
	if (used * 2 >= places && !grow())
		return false;
	struct directory *place = find(node);
	used += place->node == 0;
	*place = (struct directory){.node = node, .seconds = seconds, .fd = fd};
	return true;
}

void directories_take_back(uint64_t node)
{
	if (used == 0 || find(node)->node == 0)
		return;
	struct directory *hole = find(node);
	hole->node = 0;
	used--;
	/* Those behind it in the same run may belong further ahead now. */
	for (size_t place = (size_t)(hole - table + 1) & (places - 1); table[place].node != 0; place = (place + 1) & (places - 1)) {
		struct directory moved = table[place];
		table[place].node = 0;
		*find(moved.node) = moved;
	}
}

void directories_reset(void)
{
	free(table);
	table = NULL;
	places = used = 0;
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

static bool answer_getattr(int fd, const struct request_header *header, const struct directory *directory)
{
	struct stat stat;
	if (fstat(directory->fd, &stat) != 0)
		return false;
	struct attributes_reply reply = {.valid = directory->seconds};
	fill(&reply.attributes, header->node, &stat);
	direct_reply(fd, header->unique, 0, &reply, sizeof(reply));
	return true;
}

static bool answer_lookup(int fd, const struct request_header *header, const struct directory *directory, const char *name)
{
	struct stat stat;
	if (fstatat(directory->fd, name, &stat, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return false;
	struct entry_reply reply = {.entry_valid = directory->seconds};
	direct_reply(fd, header->unique, 0, &reply, sizeof(reply));
	return true;
}

bool directories_answer(int fd, const unsigned char *request, size_t size)
{
	struct request_header header;
	memcpy(&header, request, sizeof(header));
	if (used == 0 || (header.opcode != OPCODE_GETATTR && header.opcode != OPCODE_LOOKUP))
		return false;
	const struct directory *directory = find(header.node);
	if (directory->node == 0)
		return false;
	if (header.opcode == OPCODE_GETATTR)
		return answer_getattr(fd, &header, directory);
	if (size == sizeof(header) || request[size - 1] != '\0')
		return false;
	return answer_lookup(fd, &header, directory, (const char *)request + sizeof(header));
}
