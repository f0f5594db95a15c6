/* See splice_pipe.h. */
#include "splice_pipe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device_io.h"
#include "wire.h"

#define PAGE 4096
/* One for the header, and one if the data does not begin with a page. */
#define MORE_PAGES 2

void splice_pipe_close(struct splice_pipe *pipe)
{
	if (pipe->room > 0) {
		close(pipe->out);
		close(pipe->in);
	}
	pipe->room = 0;
}

bool splice_pipe_reserve(struct splice_pipe *pipe, size_t length)
{
	size_t needed = (length / PAGE + 1 + MORE_PAGES) * PAGE;
	int ends[2];
	if (needed <= pipe->room)
		return true;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return false;
	int room = fcntl(ends[1], F_SETPIPE_SZ, (int)needed);
	if (room <= 0) {
		close(ends[0]);
		close(ends[1]);
		return false;
	}
	splice_pipe_close(pipe);
	*pipe = (struct splice_pipe){ends[0], ends[1], (size_t)room};
	return true;
}

static size_t available(int fd, size_t length, uint64_t offset)
{
	struct stat stat;
	if (fstat(fd, &stat) != 0 || offset >= (uint64_t)stat.st_size)
		return 0;
	uint64_t rest = (uint64_t)stat.st_size - offset;
	return rest < length ? (size_t)rest : length;
}

size_t splice_pipe_fill(struct splice_pipe *pipe, int fd, uint64_t unique, size_t length, uint64_t offset)
{
	size_t data = available(fd, length, offset), done = 0;
	struct reply_header header = {.length = (uint32_t)(sizeof(header) + data), .unique = unique};
	loff_t at = (loff_t)offset;
	ssize_t got = 1;
	if (data == 0 || !splice_pipe_reserve(pipe, data) || write(pipe->in, &header, sizeof(header)) != sizeof(header))
		return 0;
	while (done < data && got > 0) {
		got = splice(fd, &at, pipe->in, NULL, data - done, 0);
		done += got > 0 ? (size_t)got : 0;
	}
	if (done == data)
		return header.length;
	splice_pipe_close(pipe); /* the file was truncated, or can't be read */
	return 0;
}

void splice_pipe_send(struct splice_pipe *pipe, int device, size_t size)
{
	device_io_count_reply();
	/* As in python_replies_reply, an error means that the request was withdrawn, or the mount has ended. */
	if (splice(pipe->out, NULL, device, NULL, size, 0) != (ssize_t)size)
		splice_pipe_close(pipe);
}

size_t splice_pipe_write(const struct splice_pipe *pipe, int fd, size_t length, uint64_t offset)
{
	loff_t at = (loff_t)offset;
	size_t done = 0;
	ssize_t got = 1;
	while (done < length && got > 0) {
		got = splice(pipe->out, NULL, fd, &at, length - done, 0);
		done += got > 0 ? (size_t)got : 0;
	}
	return done;
}

bool splice_pipe_read(const struct splice_pipe *pipe, unsigned char *buffer, size_t length)
{
	size_t done = 0;
	ssize_t got = 1;
	while (done < length && got > 0) {
		got = read(pipe->out, buffer + done, length - done);
		done += got > 0 ? (size_t)got : 0;
	}
	return done == length;
}
