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
#include <unistd.h>

#include "disk_waits.h"
#include "latency_counts.h"
#include "mounting.h"
#include "python_replies.h"
#include "request_buffer.h"
#include "splice_pipe.h"
#include "wire.h"

/* What is read at once, while other requests wait. */
#define READ_AT_ONCE (256 * 1024)
#define THREADS 4
#define MOST_JOBS 64
#define MOST_HELD_BACK 16

struct job {
	struct job *next;
	struct job *next_left; /* among all that are left to threads; belongs to the event loop */
	enum { TO_BE_DONE, UNDER_WAY, DONE } state; /* changes with the lock held */
	int lent_fd; /* the caller's descriptor of the file */
	int64_t began;
	uint64_t unique, offset;
	size_t length;
	struct backing_file file; /* with a descriptor of its own: at an unmount the caller may close the other one */
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
static int held_back[MOST_HELD_BACK], held_back_count; /* lent descriptors of files to which no write begins */
static atomic_bool any_finished;
static int running; /* threads */
static int failures = -1;
/* These belong to the event loop. */
static bool writes_are_held;
static int jobs; /* to be done, under way or not collected yet */
static struct job *first_left; /* of these */
static uint64_t failed; /* the request that a thread has given back last */

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

/* Write or read. `spliced` is the size of a reply that is in the outlet's pipe. -1 on an error. */
static ssize_t perform(struct job *job, struct outlet *outlet, size_t *spliced)
{
	if (job->opcode == OPCODE_WRITE) {
		struct disk_wait wait = disk_waits_begin(true);
		enum backing_file_written written = backing_file_write(&job->file, job->written, job->length, job->offset);
		disk_waits_end(&wait);
		job->lost = written == BACKING_FILE_LOST;
		return written == BACKING_FILE_WRITTEN ? (ssize_t)job->length : -1;
	}
	*spliced = splice_pipe_fill(&outlet->pipe, job->file.fd, job->unique, job->length, job->offset);
	if (*spliced > 0)
		return 0;
	return reserve(outlet, job->length) ? backing_file_read(&job->file, outlet->data, job->length, job->offset) : -1;
}

/* With the lock held: where a descriptor is among those held back; held_back_count if it is not. */
static int held_back_at(int fd)
{
	int at = 0;
	while (at < held_back_count && held_back[at] != fd)
		at++;
	return at;
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

/* With the lock held: the first job that may begin, or NULL. */
static struct job *next_job(void)
{
	struct job **place = &first;
	while (*place != NULL && (*place)->opcode == OPCODE_WRITE && held_back_at((*place)->lent_fd) < held_back_count)
		place = &(*place)->next;
	struct job *job = *place;
	if (job == NULL)
		return NULL;
	*place = job->next;
	if (last == &job->next)
		last = place;
	job->state = UNDER_WAY;
	return job;
}

static void *work(void *unused)
{
	(void)unused;
	struct outlet outlet = {0};
	for (;;) {
		pthread_mutex_lock(&lock);
		struct job *job;
		while ((job = next_job()) == NULL)
			pthread_cond_wait(&has_work, &lock);
		pthread_mutex_unlock(&lock);
		carry_out(job, &outlet);
		bool answered = job->answered; /* the event loop may free the job as soon as it can see it */
		pthread_mutex_lock(&lock);
		job->state = DONE;
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

/* Forget one of the jobs that are left to threads. */
static void remove_left(const struct job *job)
{
	struct job **place = &first_left;
	while (*place != job)
		place = &(*place)->next_left;
	*place = job->next_left;
}

static void discard(struct job *job)
{
	if (job->written != NULL)
		request_buffer_give_back(job->written);
	free(job);
}

/* Leave a request, which is in request_buffer(), to a thread. */
static bool leave(const struct request_header *header, const unsigned char *request, size_t size, const struct data_request *wanted,
		  const struct backing_file *file)
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
			    .length = wanted->length, .file = *file, .opcode = header->opcode, .request_size = size,
			    .lent_fd = file->fd, .next_left = first_left};
	job->file.fd = fd;
	if (!keep_request(job, request)) {
		close(fd);
		free(job);
		return false;
	}
	jobs++;
	first_left = job;
	pthread_mutex_lock(&lock);
	*last = job;
	last = &job->next;
	pthread_cond_signal(&has_work);
	pthread_mutex_unlock(&lock);
	return true;
}

/* Make a write in this step. Whether it has its reply. */
static bool write_at_once(int fd, const struct request_header *header, const struct data_request *wanted,
			  const struct backing_file *file)
{
	struct disk_wait wait = disk_waits_begin(false);
	enum backing_file_written written = backing_file_write(file, request_buffer_current(), wanted->length, wanted->offset);
	disk_waits_end(&wait);
	if (written == BACKING_FILE_LOST)
		python_replies_reply(fd, header->unique, EIO, NULL, 0);
	else if (written == BACKING_FILE_WRITTEN)
		reply(fd, OPCODE_WRITE, header->unique, NULL, wanted->length);
	return written != BACKING_FILE_FAILED;
}

static bool read_at_once(int fd, const struct request_header *header, const struct data_request *wanted,
			 const struct backing_file *file)
{
	static unsigned char buffer[READ_AT_ONCE];
	if (wanted->length > sizeof(buffer))
		return false;
	ssize_t got = backing_file_read_at_once(file, buffer, wanted->length, wanted->offset);
	if (got >= 0)
		reply(fd, OPCODE_READ, header->unique, buffer, (size_t)got);
	return got >= 0;
}

bool file_data_answer(int fd, const unsigned char *request, size_t size, const struct backing_file *file, bool *later)
{
	struct request_header header;
	struct data_request wanted;
	if (size < DATA_AT)
		return false;
	memcpy(&header, request, sizeof(header));
	memcpy(&wanted, request + sizeof(header), sizeof(wanted));
	if (header.unique == failed)
		return false;
	if (header.opcode == OPCODE_WRITE) {
		if (writes_are_held || size - DATA_AT != wanted.length)
			return false;
		if ((wanted.flags & WRITING_DROPS) && !backing_file_has_no_set_id_bits(file))
			return false;
		if (disk_waits_none())
			return write_at_once(fd, &header, &wanted, file);
	} else if (read_at_once(fd, &header, &wanted, file)) {
		return true;
	}
	*later = leave(&header, request, size, &wanted, file);
	return *later;
}

void file_data_hold_writes(bool held)
{
	writes_are_held = held;
}

/* With the lock held: whether a write to the file is in one of these states. */
static bool has_write(int fd, bool to_be_done)
{
	for (struct job *job = first_left; job != NULL; job = job->next_left)
		if (job->lent_fd == fd && job->opcode == OPCODE_WRITE &&
		    (job->state == UNDER_WAY || (to_be_done && job->state == TO_BE_DONE)))
			return true;
	return false;
}

bool file_data_is_written(int fd)
{
	if (first_left == NULL)
		return false;
	pthread_mutex_lock(&lock);
	bool is_written = has_write(fd, true);
	pthread_mutex_unlock(&lock);
	return is_written;
}

bool file_data_hold_back(int fd)
{
	pthread_mutex_lock(&lock);
	if (held_back_at(fd) == held_back_count && held_back_count < MOST_HELD_BACK)
		held_back[held_back_count++] = fd;
	bool is_under_way = has_write(fd, false);
	pthread_mutex_unlock(&lock);
	return is_under_way;
}

void file_data_let_go(int fd)
{
	pthread_mutex_lock(&lock);
	int at = held_back_at(fd);
	if (at < held_back_count)
		held_back[at] = held_back[--held_back_count];
	pthread_cond_broadcast(&has_work);
	pthread_mutex_unlock(&lock);
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
		remove_left(job);
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
