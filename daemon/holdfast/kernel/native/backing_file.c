/* See backing_file.h. */
#include "backing_file.h"

#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "splice_pipe.h"
#include "wire.h"

#define NOBODY 65534

static void begin_writing(const struct backing_file *file)
{
	if (file->as_nobody)
		setfsuid(NOBODY);
}

static void end_writing(const struct backing_file *file)
{
	if (!file->as_nobody)
		return;
	setfsuid(0);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* as in store/ordinary_user.py */
}

static enum backing_file_written write_all(const struct backing_file *file, const unsigned char *data, size_t length,
					   uint64_t offset)
{
	size_t done = 0;
	ssize_t got = 1;
	begin_writing(file);
	while (done < length && got > 0) {
		got = pwrite(file->fd, data + done, length - done, (off_t)(offset + done));
		done += got > 0 ? (size_t)got : 0;
	}
	end_writing(file);
	return done == length ? BACKING_FILE_WRITTEN : BACKING_FILE_FAILED;
}

ssize_t backing_file_read(const struct backing_file *file, unsigned char *data, size_t length, uint64_t offset)
{
	size_t done = 0;
	ssize_t got = 1;
	while (done < length && got > 0) {
		got = pread(file->fd, data + done, length - done, (off_t)(offset + done));
		done += got > 0 ? (size_t)got : 0;
	}
	return got < 0 ? -1 : (ssize_t)done;
}

/* Write from the pipe. Where that fails, as on a full disk, what was written is read back, for the buffer to have all. */
static enum backing_file_written write_from_pipe(const struct backing_file *file, struct request_buffer *buffer, size_t length,
						 uint64_t offset)
{
	unsigned char *data = buffer->data + DATA_AT;
	begin_writing(file);
	size_t done = splice_pipe_write(&buffer->pipe, file->fd, length, offset);
	end_writing(file);
	buffer->in_pipe = 0;
	if (done == length)
		return BACKING_FILE_WRITTEN;
	if (backing_file_read(file, data, done, offset) == (ssize_t)done &&
	    splice_pipe_read(&buffer->pipe, data + done, length - done))
		return BACKING_FILE_FAILED;
	splice_pipe_close(&buffer->pipe);
	return BACKING_FILE_LOST;
}

enum backing_file_written backing_file_write(const struct backing_file *file, struct request_buffer *buffer, size_t length,
					     uint64_t offset)
{
	enum backing_file_written written = BACKING_FILE_FAILED;
	if (buffer->in_pipe > 0)
		written = write_from_pipe(file, buffer, length, offset);
	return written == BACKING_FILE_FAILED ? write_all(file, buffer->data + DATA_AT, length, offset) : written;
}

ssize_t backing_file_read_at_once(const struct backing_file *file, unsigned char *data, size_t length, uint64_t offset)
{
	struct iovec part = {data, length};
	struct stat stat;
	ssize_t got = preadv2(file->fd, &part, 1, (off_t)offset, RWF_NOWAIT);
	if (got < 0 || (size_t)got == length)
		return got;
	return fstat(file->fd, &stat) == 0 && offset + (uint64_t)got >= (uint64_t)stat.st_size ? got : -1;
}

bool backing_file_has_no_set_id_bits(const struct backing_file *file)
{
	struct stat stat;
	return fstat(file->fd, &stat) == 0 && !(stat.st_mode & (S_ISUID | S_ISGID));
}
