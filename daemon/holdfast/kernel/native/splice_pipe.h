/* Data between the mount and a backing file without a copy in the daemon.
 *
 * A pipe holds references to pages. A READ's go from the page cache of the backing file through a pipe to the kernel, which copies
 * them into those of the mount; a WRITE's from the pages of the mount to the backing file. The copies saved take about as long
 * as those that are left.
 */
#ifndef HOLDFAST_SPLICE_PIPE_H
#define HOLDFAST_SPLICE_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* All zero at first. */
struct splice_pipe {
	int out, in;
	size_t room; /* bytes; 0: there is no pipe */
};

/* Have an empty pipe for `length` bytes of data and a header. False if there is none, and then nothing has changed: more than
 * fs.pipe-max-size takes CAP_SYS_RESOURCE. */
bool splice_pipe_reserve(struct splice_pipe *pipe, size_t length);

/* Close the pipe, with what is in it. */
void splice_pipe_close(struct splice_pipe *pipe);

/* Bring the reply to a READ, with up to `length` bytes of the file `fd`, into the pipe. Waits for the disk. The size of the reply;
 * 0 if that is not possible, and then the pipe is empty. */
size_t splice_pipe_fill(struct splice_pipe *pipe, int fd, uint64_t unique, size_t length, uint64_t offset);

/* Send the reply of `size` bytes that is in the pipe to the mount `device`. */
void splice_pipe_send(struct splice_pipe *pipe, int device, size_t size);

/* Write `length` bytes from the pipe to the file `fd`. How many were written; the others are still in the pipe. */
size_t splice_pipe_write(const struct splice_pipe *pipe, int fd, size_t length, uint64_t offset);

/* Read `length` bytes from the pipe, which has them. */
bool splice_pipe_read(const struct splice_pipe *pipe, unsigned char *buffer, size_t length);

#endif
