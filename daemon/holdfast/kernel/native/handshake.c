/* See handshake.h. */
#include "handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Format of the kept file: this magic, the sizes of request and reply as 32-bit numbers, request, reply. */
static const char KEPT_MAGIC[8] = {'H', 'F', 'I', 'N', 'I', 'T', '1', '\n'};

/* A MiB, libfuse's limit, does not fit into the processor's caches together with its copy, nor with its header into a pipe of
 * fs.pipe-max-size (request_buffer.h): two writes of half of it are faster. */
#define LONGEST_WRITE (512 * 1024)

struct handshake handshake;

void handshake_reset(void)
{
	memset(&handshake, 0, sizeof(handshake));
}

static uint64_t flags_of(uint32_t low, uint32_t high)
{
	return low & INIT_EXTENDED ? low | (uint64_t)high << 32 : low;
}

/* Before protocol 7.36 the kernel's request ends in the middle of `init_request`. */
static void note_offer(const void *request, size_t size)
{
	struct request_header header;
	struct init_request init = {0};
	size_t body = size - sizeof(header);
	memcpy(&header, request, sizeof(header));
	memcpy(&init, (const unsigned char *)request + sizeof(header), body < sizeof(init) ? body : sizeof(init));
	handshake.awaited = header.unique;
	handshake.offered = flags_of(init.flags, init.more_flags);
}

static void note_agreement(void)
{
	struct init_reply init;
	memcpy(&init, handshake.reply + sizeof(struct reply_header), sizeof(init));
	handshake.agreed = flags_of(init.flags, init.more_flags);
	handshake.write_bytes = init.write_bytes;
}

static bool can_be_kept(size_t request_size)
{
	return request_size >= sizeof(struct request_header) + sizeof(struct init_request) &&
	       request_size <= sizeof(handshake.request);
}

bool handshake_take(const void *request, size_t request_size, const void *reply, size_t reply_size)
{
	struct request_header header;
	if (!can_be_kept(request_size) || reply_size != sizeof(handshake.reply))
		return false;
	memcpy(&header, request, sizeof(header));
	if (header.opcode != OPCODE_INIT || header.length != request_size || header.unique == 0)
		return false;
	memcpy(handshake.request, request, request_size);
	handshake.request_size = request_size;
	memcpy(handshake.reply, reply, reply_size);
	handshake.reply_size = reply_size;
	handshake.replay = true;
	note_offer(request, request_size);
	note_agreement();
	return true;
}

ssize_t handshake_replay(void *buffer, size_t size)
{
	if (!handshake.replay || handshake.replayed || size < handshake.request_size)
		return 0;
	handshake.replayed = true;
	memcpy(buffer, handshake.request, handshake.request_size);
	return (ssize_t)handshake.request_size;
}

void handshake_note_request(const void *request, size_t size)
{
	note_offer(request, size);
	handshake.request_size = can_be_kept(size) ? size : 0;
	memcpy(handshake.request, request, handshake.request_size);
}

/* Write `parts`, together `size` bytes, to a new file. 0, or an errno. */
static int write_file(const char *path, const struct iovec *parts, int count, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno;
	ssize_t written = writev(fd, parts, count);
	int problem = written < 0 ? errno : (size_t)written != size ? ENOSPC : 0;
	if (close(fd) != 0 && problem == 0)
		problem = errno;
	return problem;
}

/* Write the exchange to its file. No fsync: like the mount, it need not outlive the machine. 0, or an errno. */
static int keep(void)
{
	char unfinished[PATH_MAX + 8];
	uint32_t sizes[2] = {(uint32_t)handshake.request_size, (uint32_t)handshake.reply_size};
	struct iovec parts[4] = {
		{(void *)KEPT_MAGIC, sizeof(KEPT_MAGIC)},
		{sizes, sizeof(sizes)},
		{handshake.request, handshake.request_size},
		{handshake.reply, handshake.reply_size},
	};
	size_t size = sizeof(KEPT_MAGIC) + sizeof(sizes) + handshake.request_size + handshake.reply_size;
	snprintf(unfinished, sizeof(unfinished), "%s.new", handshake.keep_path);
	int problem = write_file(unfinished, parts, 4, size);
	if (problem == 0 && rename(unfinished, handshake.keep_path) != 0)
		problem = errno;
	return problem;
}

/* Set the flags of `add` that the kernel offers, and clear those that these exclude. Limit writes. */
static void amend(struct init_reply *init)
{
	uint64_t flags = flags_of(init->flags, init->more_flags) | (handshake.add & handshake.offered);
	if (flags & INIT_EXPLICIT_INVALIDATE)
		flags &= ~INIT_AUTO_INVALIDATE;
	if (flags & INIT_WRITEBACK_CACHE)
		flags &= ~INIT_PASSTHROUGH; /* the kernel supports only one of the two */
	if (flags >> 32 != 0)
		flags |= INIT_EXTENDED;
	if (init->write_bytes > LONGEST_WRITE)
		init->write_bytes = LONGEST_WRITE;
	init->flags = (uint32_t)flags;
	init->more_flags = (uint32_t)(flags >> 32);
	if (flags & INIT_PASSTHROUGH)
		init->stack_depth = STACK_DEPTH;
}

ssize_t handshake_reply(int fd, const struct iovec *parts, int count)
{
	struct reply_header header;
	memcpy(&header, parts[0].iov_base, sizeof(header));
	handshake.awaited = 0;
	if (handshake.replay)
		return (ssize_t)header.length; /* the kernel has the reply already, or gets it from handshake_repeat */
	if (header.error != 0 || count != 2 || parts[1].iov_len != sizeof(struct init_reply))
		return writev(fd, parts, count);
	struct init_reply init;
	memcpy(&init, parts[1].iov_base, sizeof(init));
	amend(&init);
	memcpy(handshake.reply, &header, sizeof(header));
	memcpy(handshake.reply + sizeof(header), &init, sizeof(init));
	handshake.reply_size = sizeof(handshake.reply);
	note_agreement();
	if (handshake.keep_path[0] != '\0')
		handshake.keep_error = handshake.request_size > 0 ? keep() : EMSGSIZE;
	return write(fd, handshake.reply, sizeof(handshake.reply));
}

int handshake_repeat(int fd, uint64_t unique)
{
	unsigned char reply[KEPT_REPLY_LIMIT];
	struct reply_header header;
	memcpy(reply, handshake.reply, sizeof(reply));
	memcpy(&header, reply, sizeof(header));
	header.unique = unique; /* which has the flag of a resent request: the kernel looks it up with the flag */
	memcpy(reply, &header, sizeof(header));
	return write(fd, reply, sizeof(reply)) < 0 ? -1 : 0;
}
