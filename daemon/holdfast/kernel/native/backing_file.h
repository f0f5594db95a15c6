/* Reading and writing the backing file of a file whose data the daemon serves. */
#ifndef HOLDFAST_BACKING_FILE_H
#define HOLDFAST_BACKING_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "request_buffer.h"

struct backing_file {
	int fd; /* kept open by the caller as long as the kernel has a handle */
	uint32_t zone; /* for which it is counted (latency_counts.h) */
	bool as_nobody; /* write as an ordinary user, who takes nothing of what the disk keeps for root */
};

enum backing_file_written {
	BACKING_FILE_WRITTEN,
	BACKING_FILE_FAILED, /* all of the data is in the buffer */
	BACKING_FILE_LOST, /* so is not all of the data: there is nothing to give to libfuse */
};

/* Write `length` bytes of a WRITE that is in `buffer`, or in its pipe. */
enum backing_file_written backing_file_write(const struct backing_file *file, struct request_buffer *buffer, size_t length,
					     uint64_t offset);

/* Read up to `length` bytes; fewer are there at the end of the file only. -1 on an error. */
ssize_t backing_file_read(const struct backing_file *file, unsigned char *data, size_t length, uint64_t offset);

/* The same, from the page cache. -1 also if that has not all of it. */
ssize_t backing_file_read_at_once(const struct backing_file *file, unsigned char *data, size_t length, uint64_t offset);

/* Whether a write leaves the file's mode as it is. */
bool backing_file_has_no_set_id_bits(const struct backing_file *file);

#endif
