/* See io.h. */
#include "device_io.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "python_replies.h"
#include "handshake.h"
#include "idle_loop.h"
#include "fd_replies.h"
#include "privileges.h"
#include "reply_edits.h"
#include "fallocate_requests.h"

atomic_uint_least64_t io_requests[OPCODE_LIMIT];
atomic_uint_least64_t io_replies;
atomic_uint_least64_t io_notifications;
static uint64_t current;
static bool current_drops;

static void count(atomic_uint_least64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Read one request. As read(2), but for EINTR. */
static ssize_t receive(int fd, void *buffer, size_t size)
{
	ssize_t got = read(fd, buffer, size);
	/* The request that made the descriptor readable was withdrawn. pyfuse3 waits again on EINTR, and on EINTR only. */
	if (got < 0 && errno == EAGAIN)
		errno = EINTR;
	return got;
}

static ssize_t next_request(int fd, void *buffer, size_t size)
{
	struct request_header header;
	ssize_t got = handshake_replay(buffer, size);
	if (got > 0)
		return got;
	got = receive(fd, buffer, size);
	if (!handshake.replay || got < (ssize_t)sizeof(header))
		return got;
	memcpy(&header, buffer, sizeof(header));
	if (header.opcode != OPCODE_INIT)
		return got;
	/* The kernel still waits for the reply that the earlier daemon kept and did not send. */
	if (handshake_repeat(fd, header.unique) < 0)
		return -1;
	return receive(fd, buffer, size);
}

/* Read one request and note what it is. */
static ssize_t noted_request(int fd, void *buffer, size_t size)
{
	struct request_header header;
	ssize_t got = next_request(fd, buffer, size);
	if (got < (ssize_t)sizeof(header))
		return got;
	memcpy(&header, buffer, sizeof(header));
	count(&io_requests[header.opcode < OPCODE_LIMIT ? header.opcode : 0]);
	current = header.unique;
	current_drops = privileges_must_go(buffer, (size_t)got);
	if (header.opcode == OPCODE_INIT)
		handshake_note_request(buffer, (size_t)got);
	return got;
}

ssize_t io_next(int fd, void *buffer, size_t size, bool patient)
{
	struct reply_turn turn;
	python_replies_begin(&turn);
	for (;;) {
		ssize_t got = noted_request(fd, buffer, size);
		if (got < 0 && errno == EINTR && patient && python_replies_looks_again(&turn))
			continue;
		if (got < (ssize_t)sizeof(struct request_header))
			return got;
		if (!fd_replies_answer(fd, buffer, (size_t)got) && !python_replies_answer(&turn, fd, buffer, (size_t)got))
			return fallocate_requests_apply(buffer, got, size);
		if (!python_replies_answered(&turn)) {
			errno = EINTR;
			return -1;
		}
	}
}

static ssize_t io_read(int fd, void *buffer, size_t size, void *user_data)
{
	(void)user_data;
	ssize_t got;
	if (idle_loop_take(buffer, size, &got))
		return got;
	if (!idle_loop_note_size(size)) {
		errno = ENOMEM;
		return -1;
	}
	return io_next(fd, buffer, size, true);
}

static ssize_t io_writev(int fd, struct iovec *parts, int parts_count, void *user_data)
{
	(void)user_data;
	struct reply_header header;
	if (parts_count < 1 || parts[0].iov_len < sizeof(header))
		return writev(fd, parts, parts_count);
	memcpy(&header, parts[0].iov_base, sizeof(header));
	if (header.unique == 0) {
		/* From any thread, without Python's lock. */
		count(&io_notifications);
		return writev(fd, parts, parts_count);
	}
	count(&io_replies);
	if (header.unique == handshake.awaited)
		return handshake_reply(fd, parts, parts_count);
	struct change change;
	if (reply_edits_take(header.unique, &change))
		return reply_edits_write(fd, parts, parts_count, &change);
	return writev(fd, parts, parts_count);
}

const struct custom_io io = {.writev = io_writev, .read = io_read, .splice_receive = NULL, .splice_send = NULL};

void io_count_reply(void)
{
	count(&io_replies);
}

uint64_t io_current(void)
{
	return current;
}

bool io_current_drops(void)
{
	return current_drops;
}

void io_reset(void)
{
	for (int i = 0; i < OPCODE_LIMIT; i++)
		atomic_store_explicit(&io_requests[i], 0, memory_order_relaxed);
	atomic_store_explicit(&io_replies, 0, memory_order_relaxed);
	atomic_store_explicit(&io_notifications, 0, memory_order_relaxed);
	current = 0;
	current_drops = false;
}
