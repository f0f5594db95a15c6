/* See request_buffer.h. */
#include "request_buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handshake.h"
#include "wire.h"

/* As many as there are threads that write (file_data.c). */
#define SPARES 4

static struct request_buffer *current;
static size_t current_size;
static struct request_buffer *spares[SPARES];
static int spare_count;
static bool expects_write;

/* The longest request, rounded up to whole pages. */
static size_t longest(void)
{
	return handshake.write_bytes + (size_t)4096;
}

struct request_buffer *request_buffer_current(void)
{
	return current;
}

unsigned char *request_buffer(void)
{
	return current == NULL ? NULL : current->data;
}

size_t request_buffer_size(void)
{
	return current_size;
}

static struct request_buffer *make(size_t size)
{
	struct request_buffer *made = malloc(sizeof(*made) + size);
	if (made != NULL)
		memset(made, 0, sizeof(*made));
	return made;
}

static void discard(struct request_buffer *buffer)
{
	if (buffer != NULL)
		splice_pipe_close(&buffer->pipe);
	free(buffer);
}

bool request_buffer_reserve(size_t size)
{
	if (size <= current_size)
		return true;
	struct request_buffer *larger = make(size);
	if (larger == NULL)
		return false;
	discard(current);
	while (spare_count > 0)
		discard(spares[--spare_count]);
	current = larger;
	current_size = size;
	return true;
}

/* Expect another long WRITE after one. */
static void note(ssize_t got)
{
	struct request_header header;
	memcpy(&header, current->data, sizeof(header));
	expects_write = header.opcode == OPCODE_WRITE && got > (ssize_t)(DATA_AT + LONG_WRITE);
}

/* Splice a request into the pipe and read its first bytes; leave the rest there only if it is a long WRITE's. */
static ssize_t receive_by_pipe(int fd)
{
	ssize_t got = splice(fd, NULL, current->pipe.in, NULL, longest(), 0);
	if (got <= 0)
		return got;
	size_t head = (size_t)got < DATA_AT ? (size_t)got : DATA_AT;
	if (!splice_pipe_read(&current->pipe, current->data, head))
		return -1;
	current->in_pipe = (size_t)got - head;
	note(got);
	return expects_write || request_buffer_complete() ? got : -1;
}

/* Whether read(2) would have failed too: the request was withdrawn, or the mount has ended. */
static bool is_of_the_mount(int error)
{
	return error == EAGAIN || error == EINTR || error == ENOENT || error == ENODEV || error == ECONNABORTED;
}

ssize_t request_buffer_receive(int fd)
{
	if (expects_write && splice_pipe_reserve(&current->pipe, longest())) {
		ssize_t got = receive_by_pipe(fd);
		if (got >= 0 || is_of_the_mount(errno))
			return got;
		splice_pipe_close(&current->pipe);
	}
	ssize_t got = read(fd, current->data, current_size); /* also where there is no pipe, or splice(2) is not allowed */
	if (got >= (ssize_t)sizeof(struct request_header))
		note(got);
	return got;
}

void request_buffer_reset(void)
{
	expects_write = false;
	if (current == NULL)
		return;
	current->in_pipe = 0;
	splice_pipe_close(&current->pipe);
}

bool request_buffer_complete(void)
{
	size_t length = current->in_pipe;
	current->in_pipe = 0;
	if (length == 0 || splice_pipe_read(&current->pipe, current->data + DATA_AT, length))
		return true;
	splice_pipe_close(&current->pipe);
	return false;
}

struct request_buffer *request_buffer_keep(void)
{
	struct request_buffer *kept = current, *other = spare_count > 0 ? spares[--spare_count] : make(current_size);
	if (other == NULL)
		return NULL;
	current = other;
	return kept;
}

void request_buffer_give_back(struct request_buffer *buffer)
{
	if (spare_count < SPARES)
		spares[spare_count++] = buffer;
	else
		discard(buffer);
}
