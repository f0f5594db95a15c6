/* READ and WRITE of a complete local file, from the descriptor of its backing file, without Python.
 *
 * To the rest of the daemon such data is as if it went past it (fs/file_io/passthrough.py): nobody is told of a write.
 * What is in the page cache is read in the step in which the request is read, and writes are made there as long as they don't
 * wait for the disk (disk_waits.h). All else is left to a few threads, which reply by themselves and never take the GIL.
 * Whatever fails goes to libfuse, and to the file system's handlers: they make room on a full disk, and know what to do about
 * a bad one.
 */
#ifndef HOLDFAST_FILE_DATA_H
#define HOLDFAST_FILE_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backing_file.h"

/* Answer a READ or a WRITE, with its header, that was read from the mount `fd` into request_buffer(). False: libfuse must handle
 * it. `later` is set if a thread gives the reply; then it may have kept the buffer. */
bool file_data_answer(int fd, const unsigned char *request, size_t size, const struct backing_file *file, bool *later);

/* Whether to leave all writes to libfuse: a user may not write any more. */
void file_data_hold_writes(bool held);

/* Whether threads have a write to do, or under way, to the file that was lent with this descriptor. */
bool file_data_is_written(int fd);

/* Begin no further write to that file until file_data_let_go; whether one is under way. If too many files are held back
 * already, this one is not. */
bool file_data_hold_back(int fd);
void file_data_let_go(int fd);

/* Count what the threads have done since the last call, and take a request with which one of them has failed: as read(2), but 0
 * if there is none. */
ssize_t file_data_collect(void *buffer, size_t size);

/* An eventfd that becomes readable when there is such a request; -1 before any thread runs. */
int file_data_failures(void);

/* The mount's descriptor is about to be closed: no thread replies any more. */
void file_data_end(void);

#endif
