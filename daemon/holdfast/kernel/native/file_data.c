/* See file_data.h. */
#include "file_data.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "latency_counts.h"
#include "mounting.h"
#include "python_replies.h"
#include "request_buffer.h"
#include "splice_pipe.h"
#include "wire.h"

#define NOBODY 65534
/* What is read at once, while other requests wait; of writes, what is not long. A long one may have to wait for the disk, which is
 * behind. */
#define READ_AT_ONCE (256 * 1024)
#define THREADS 4
#define MOST_JOBS 64

struct job {
	struct job *next;
	int64_t began;
	uint64_t unique, offset;
	size_t length;
	struct data_file file; /* with a descriptor of its own: at an unmount the caller may close the other one */
	uint32_t opcode;
	bool answered;
	size_t request_size;
	bool lost; /* the data of a write: there is nothing to give to libfuse */
	struct request_buffer *written; /* the buffer with a WRITE, to be given back */
	unsigned char read[DATA_AT]; /* or the whole READ */
};

/* What a thread replies from. It is used again and again: fresh memory would have to be faulted in. */
struct outlet {
	struct splice_pipe pipe;
	unsigned char *data;
	size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_work = PTHREAD_COND_INITIALIZER;
/* Held for reading while a thread replies, so that file_data_end can wait for that. */
static pthread_rwlock_t replying = PTHREAD_RWLOCK_INITIALIZER;
static struct job *first, **last = &first; /* to be done, in order */
static struct job *finished;
static atomic_bool any_finished;
static int running; /* threads */
static int failures = -1;
/* These belong to the event loop. */
static bool writes_are_held;
static int jobs; /* to be done, under way or not collected yet */
static uint64_t failed; /* the request that a thread has given back last */

static void begin_writing(const struct data_file *file)
{
	if (file->as_nobody)
		setfsuid(NOBODY);
}

static void end_writing(const struct data_file *file)
{
	if (!file->as_nobody)
		return;
	setfsuid(0);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* as in store/ordinary_user.py */
}

static ssize_t write_all(const struct data_file *file, const unsigned char *data, size_t length, uint64_t offset)
{
	size_t done = 0;
	ssize_t got = 1;
	begin_writing(file);
	while (done < length && got > 0) {
		got = pwrite(file->fd, data + done, length - done, (off_t)(offset + done));
		done += got > 0 ? (size_t)got : 0;
	}
	end_writing(file);
	return done == length ? (ssize_t)done : -1;
}

static ssize_t read_all(const struct data_file *file, unsigned char *data, size_t length, uint64_t offset)
{
	size_t done = 0;
	ssize_t got = 1;
	while (done < length && got > 0) {
		got = pread(file->fd, data + done, length - done, (off_t)(offset + done));
		done += got > 0 ? (size_t)got : 0;
	}
	return got < 0 ? -1 : (ssize_t)done;
}

static void reply(int fd, uint32_t opcode, uint64_t unique, const unsigned char *data, size_t length)
{
	struct write_reply written = {.length = (uint32_t)length};
	if (opcode == OPCODE_WRITE)
		python_replies_reply(fd, unique, 0, &written, sizeof(written));
	else
		python_replies_reply(fd, unique, 0, data, length);
}

static bool reserve(struct outlet *outlet, size_t size)
{
	if (size <= outlet->size)
		return true;
	free(outlet->data);
	outlet->data = malloc(size);
	outlet->size = outlet->data == NULL ? 0 : size;
	return outlet->data != NULL;
}

/* Write from the request's pipe. Where that fails, as on a full disk, all of the data is in its buffer afterwards: what was written
 * is read back. */
static bool write_from_pipe(struct job *job)
{
	struct request_buffer *from = job->written;
	unsigned char *data = from->data + DATA_AT;
	begin_writing(&job->file);
	size_t done = splice_pipe_write(&from->pipe, job->file.fd, job->length, job->offset);
	end_writing(&job->file);
	from->in_pipe = 0;
	if (done == job->length)
		return true;
	job->lost = read_all(&job->file, data, done, job->offset) != (ssize_t)done ||
		    !splice_pipe_read(&from->pipe, data + done, job->length - done);
	if (job->lost)
		splice_pipe_close(&from->pipe);
	return false;
}

static ssize_t write_request(struct job *job)
{
	if (job->written->in_pipe > 0 && write_from_pipe(job))
		return (ssize_t)job->length;
	return job->lost ? -1 : write_all(&job->file, job->written->data + DATA_AT, job->length, job->offset);
}

/* Write or read. `spliced` is the size of a reply that is in the outlet's pipe. -1 on an error. */
static ssize_t perform(struct job *job, struct outlet *outlet, size_t *spliced)
{
	if (job->opcode == OPCODE_WRITE)
		return write_request(job);
	*spliced = splice_pipe_fill(&outlet->pipe, job->file.fd, job->unique, job->length, job->offset);
	if (*spliced > 0)
		return 0;
	return reserve(outlet, job->length) ? read_all(&job->file, outlet->data, job->length, job->offset) : -1;
}

static void carry_out(struct job *job, struct outlet *outlet)
{
	size_t spliced = 0;
	ssize_t done = perform(job, outlet, &spliced);
	close(job->file.fd);
	job->answered = done >= 0 || job->lost;
	if (!job->answered)
		return;
	pthread_rwlock_rdlock(&replying);
	if (spliced > 0)
		splice_pipe_send(&outlet->pipe, mounting.fd, spliced);
	else if (mounting.fd >= 0 && job->lost)
		python_replies_reply(mounting.fd, job->unique, EIO, NULL, 0);
	else if (mounting.fd >= 0)
		reply(mounting.fd, job->opcode, job->unique, outlet->data, (size_t)done);
	pthread_rwlock_unlock(&replying);
}

static void *work(void *unused)
{
	(void)unused;
	struct outlet outlet = {0};
	for (;;) {
		pthread_mutex_lock(&lock);
		while (first == NULL)
			pthread_cond_wait(&has_work, &lock);
		struct job *job = first;
		first = job->next;
		if (first == NULL)
			last = &first;
		pthread_mutex_unlock(&lock);
		carry_out(job, &outlet);
		bool answered = job->answered; /* the event loop may free the job as soon as it can see it */
		pthread_mutex_lock(&lock);
		job->next = finished;
		finished = job;
		atomic_store(&any_finished, true);
		pthread_mutex_unlock(&lock);
		if (!answered)
			(void)!eventfd_write(failures, 1);
	}
	return NULL;
}

/* Start one more thread, unless there are enough. It gets no signals: those are for Python's main thread. False if there is none. */
static bool start_thread(void)
{
	if (failures < 0)
		failures = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (failures < 0 || running == THREADS)
		return running > 0;
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, work, NULL) == 0) {
		pthread_detach(thread);
		running++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return running > 0;
}

/* Keep a request for a thread: a WRITE with its data by keeping the buffer that it was read into. */
static bool keep_request(struct job *job, const unsigned char *request)
{
	if (job->opcode == OPCODE_WRITE)
		return (job->written = request_buffer_keep()) != NULL;
	memcpy(job->read, request, sizeof(job->read));
	return job->request_size == sizeof(job->read);
}

static void discard(struct job *job)
{
	if (job->written != NULL)
		request_buffer_give_back(job->written);
	free(job);
}

/* Leave a request, which is in request_buffer(), to a thread. */
static bool leave(const struct request_header *header, const unsigned char *request, size_t size, const struct data_request *wanted,
		  const struct data_file *file)
{
	if (jobs == MOST_JOBS || !start_thread())
		return false;
	struct job *job = malloc(sizeof(*job));
	int fd = job == NULL ? -1 : fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		free(job);
		return false;
	}
	*job = (struct job){.began = latency_counts_now(), .unique = header->unique, .offset = wanted->offset,
			    .length = wanted->length, .file = *file, .opcode = header->opcode, .request_size = size};
	job->file.fd = fd;
	if (!keep_request(job, request)) {
		close(fd);
		free(job);
		return false;
	}
	jobs++;
	pthread_mutex_lock(&lock);
	*last = job;
	last = &job->next;
	pthread_cond_signal(&has_work);
	pthread_mutex_unlock(&lock);
	return true;
}

/* Read what is in the page cache. -1 when that is not all, or on an error. */
static ssize_t read_at_once(const struct data_file *file, unsigned char *buffer, size_t length, uint64_t offset)
{
	struct iovec part = {buffer, length};
	struct stat stat;
	ssize_t got = preadv2(file->fd, &part, 1, (off_t)offset, RWF_NOWAIT);
	if (got < 0 || (size_t)got == length)
		return got;
	return fstat(file->fd, &stat) == 0 && offset + (uint64_t)got >= (uint64_t)stat.st_size ? got : -1;
}

static bool keeps_privileges(const struct data_request *wanted, int fd)
{
	struct stat stat;
	return !(wanted->flags & WRITING_DROPS) || (fstat(fd, &stat) == 0 && !(stat.st_mode & (S_ISUID | S_ISGID)));
}

bool file_data_answer(int fd, const unsigned char *request, size_t size, const struct data_file *file, bool *later)
{
	static unsigned char buffer[READ_AT_ONCE];
	struct request_header header;
	struct data_request wanted;
	if (size < DATA_AT)
		return false;
	memcpy(&header, request, sizeof(header));
	memcpy(&wanted, request + sizeof(header), sizeof(wanted));
	if (header.unique == failed)
		return false;
	ssize_t done = -1;
	if (header.opcode == OPCODE_WRITE) {
		if (writes_are_held || size - DATA_AT != wanted.length || !keeps_privileges(&wanted, file->fd))
			return false;
		if (wanted.length <= LONG_WRITE) {
			done = write_all(file, request + DATA_AT, wanted.length, wanted.offset);
			if (done < 0)
				return false;
		}
	} else if (wanted.length <= READ_AT_ONCE) {
		done = read_at_once(file, buffer, wanted.length, wanted.offset);
	}
	if (done >= 0)
		reply(fd, header.opcode, header.unique, buffer, (size_t)done);
	else
		*later = leave(&header, request, size, &wanted, file);
	return done >= 0 || *later;
}

void file_data_hold_writes(bool held)
{
	writes_are_held = held;
}

ssize_t file_data_collect(void *buffer, size_t size)
{
	ssize_t got = 0;
	if (!atomic_load_explicit(&any_finished, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&lock);
	while (finished != NULL && got == 0) {
		struct job *job = finished;
		finished = job->next;
		jobs--;
		latency_counts_set_zone(job->file.zone);
		if (job->answered) {
			latency_counts_add(job->opcode, latency_counts_now() - job->began);
		} else if (job->request_size <= size) {
			memcpy(buffer, job->written != NULL ? job->written->data : job->read, job->request_size);
			got = (ssize_t)job->request_size;
			failed = job->unique;
		}
		discard(job);
	}
	atomic_store(&any_finished, finished != NULL);
	pthread_mutex_unlock(&lock);
	return got;
}

int file_data_failures(void)
{
	return failures;
}

void file_data_end(void)
{
	pthread_rwlock_wrlock(&replying);
	mounting.fd = -1;
	pthread_rwlock_unlock(&replying);
}
