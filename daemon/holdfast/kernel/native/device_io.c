/* See device_io.h. */
#include "device_io.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "python_replies.h"
#include "handshake.h"
#include "event_loop_wait.h"
#include "execution_mark.h"
#include "file_data.h"
#include "latency_counts.h"
#include "native_replies.h"
#include "privileges.h"
#include "request_buffer.h"
#include "reply_edits.h"
#include "fallocate_requests.h"

atomic_uint_least64_t device_io_requests[OPCODE_LIMIT];
atomic_uint_least64_t device_io_replies;
atomic_uint_least64_t device_io_notifications;
static uint64_t current;
static uint32_t current_opcode;
static bool current_drops;
static uint32_t current_user;
static uint32_t current_process;

static void count(atomic_uint_least64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Read one request into the buffer. As read(2), with EINTR instead of EAGAIN. */
static ssize_t receive(int fd)
{
	ssize_t got = request_buffer_receive(fd);
	/* The request that made the descriptor readable was withdrawn. Only on EINTR does pyfuse3 wait again. */
	if (got < 0 && errno == EAGAIN)
		errno = EINTR;
	return got;
}

static ssize_t next_request(int fd, void *buffer, size_t size)
{
	struct request_header header;
	ssize_t got = handshake_replay(buffer, size);
	if (got == 0)
		got = file_data_collect(buffer, size);
	if (got > 0)
		return got;
	got = receive(fd);
	if (!handshake.replay || got < (ssize_t)sizeof(header))
		return got;
	memcpy(&header, buffer, sizeof(header));
	if (header.opcode != OPCODE_INIT)
		return got;
	/* The kernel still waits for the reply: the earlier daemon kept it, but died before sending it. */
	if (handshake_repeat(fd, header.unique) < 0)
		return -1;
	return receive(fd);
}

/* Read one request, count it and note its number. */
static ssize_t noted_request(int fd, void *buffer, size_t size)
{
	struct request_header header;
	ssize_t got = next_request(fd, buffer, size);
	if (got < (ssize_t)sizeof(header))
		return got;
	memcpy(&header, buffer, sizeof(header));
	count(&device_io_requests[header.opcode < OPCODE_LIMIT ? header.opcode : 0]);
	current = header.unique;
	execution_mark_set(current);
	current_drops = privileges_dropped_by(buffer, (size_t)got);
	current_user = header.uid;
	current_process = header.pid;
	current_opcode = header.opcode;
	if (header.opcode == OPCODE_INIT)
		handshake_note_request(buffer, (size_t)got);
	return got;
}

/* Refuse a request if it has ended an earlier daemon. */
static bool refuse(int fd, const unsigned char *request, size_t size)
{
	if (!execution_mark_refuses(current))
		return false;
	request_buffer_complete();
	python_replies_refuse(fd, request, size);
	return true;
}

ssize_t device_io_next(int fd, bool poll_again)
{
	struct reply_turn turn;
	python_replies_begin(&turn);
	for (;;) {
		unsigned char *buffer = request_buffer(); /* an answer may keep it */
		size_t size = request_buffer_size();
		ssize_t got = noted_request(fd, buffer, size);
		if (got < 0 && errno == EINTR && poll_again && python_replies_poll_again(&turn))
			continue;
		if (got < (ssize_t)sizeof(struct request_header))
			return got;
		int64_t read = latency_counts_now();
		if (!refuse(fd, buffer, (size_t)got) && !native_replies_answer(fd, buffer, (size_t)got, &turn.waits)) {
			if (!request_buffer_complete())
				python_replies_reply(fd, current, EIO, NULL, 0);
			else if (!python_replies_answer(&turn, fd, buffer, (size_t)got))
				return fallocate_requests_apply(buffer, got, size);
		}
		execution_mark_set(0);
		if (!python_replies_go_on(&turn, current_opcode, read)) {
			errno = EINTR;
			return -1;
		}
	}
}

static ssize_t device_io_read(int fd, void *buffer, size_t size, void *user_data)
{
	(void)user_data;
	ssize_t got;
	if (!event_loop_wait_take(&got)) {
		if (!request_buffer_reserve(size)) {
			errno = ENOMEM;
			return -1;
		}
		got = device_io_next(fd, true);
	}
	if (got > 0)
		memcpy(buffer, request_buffer(), (size_t)got < size ? (size_t)got : size);
	return got;
}

static ssize_t device_io_writev(int fd, struct iovec *parts, int parts_count, void *user_data)
{
	(void)user_data;
	struct reply_header header;
	if (parts_count < 1 || parts[0].iov_len < sizeof(header))
		return writev(fd, parts, parts_count);
	memcpy(&header, parts[0].iov_base, sizeof(header));
	if (header.unique == 0) {
		/* A notification: from any thread, without the GIL. */
		count(&device_io_notifications);
		return writev(fd, parts, parts_count);
	}
	count(&device_io_replies);
	execution_mark_replied(header.unique);
	if (header.unique == handshake.awaited)
		return handshake_reply(fd, parts, parts_count);
	struct reply_edit edit;
	if (reply_edits_take(header.unique, &edit))
		return reply_edits_write(fd, parts, parts_count, &edit);
	return writev(fd, parts, parts_count);
}

const struct custom_io device_io = {
	.writev = device_io_writev,
	.read = device_io_read,
	.splice_receive = NULL,
	.splice_send = NULL,
};

void device_io_count_reply(void)
{
	count(&device_io_replies);
}

uint64_t device_io_current(void)
{
	return current;
}

bool device_io_current_drops(void)
{
	return current_drops;
}

uint32_t device_io_current_user(void)
{
	return current_user;
}

uint32_t device_io_current_process(void)
{
	return current_process;
}

void device_io_reset(void)
{
	for (int i = 0; i < OPCODE_LIMIT; i++)
		atomic_store_explicit(&device_io_requests[i], 0, memory_order_relaxed);
	atomic_store_explicit(&device_io_replies, 0, memory_order_relaxed);
	atomic_store_explicit(&device_io_notifications, 0, memory_order_relaxed);
	current = 0;
	current_drops = false;
	current_user = current_process = current_opcode = 0;
}
