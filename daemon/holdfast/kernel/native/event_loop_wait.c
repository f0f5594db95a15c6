/* See event_loop_wait.h. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "event_loop_wait.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "device_io.h"
#include "execution_mark.h"
#include "file_data.h"
#include "request_buffer.h"

/* A request for libfuse that waits to be taken, or the error of the read. */
static struct {
	bool waits; /* in request_buffer() */
	ssize_t got;
	int error;
	int handed_over;
} request = {.handed_over = -1};

static bool interrupted;

void event_loop_wait_reset(void)
{
	memset(&request, 0, sizeof(request));
	request.handed_over = -1;
}

void event_loop_wait_interrupt(void)
{
	interrupted = true;
}

bool event_loop_wait_take(ssize_t *got)
{
	if (!request.waits)
		return false;
	eventfd_t ignored;
	(void)!eventfd_read(request.handed_over, &ignored);
	request.waits = false;
	if (request.got > 0)
		execution_mark_set(device_io_current());
	errno = request.error;
	*got = request.got;
	return true;
}

/* Answer the pending requests. True when there is a request, or an error, for libfuse. */
static bool answer_all(int fd, bool poll_again)
{
	request.got = device_io_next(fd, poll_again);
	request.error = errno;
	request.waits = request.got >= 0 || request.error != EINTR;
	execution_mark_set(0);
	if (request.waits)
		(void)!eventfd_write(request.handed_over, 1);
	return request.waits;
}

static struct timespec after(double seconds)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_sec += (time_t)seconds;
	time.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
	if (time.tv_nsec >= 1000000000) {
		time.tv_sec++;
		time.tv_nsec -= 1000000000;
	}
	return time;
}

/* Return the time until `end`; false when that is past. */
static bool remaining(const struct timespec *end, struct timespec *left)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	left->tv_sec = end->tv_sec - now.tv_sec;
	left->tv_nsec = end->tv_nsec - now.tv_nsec;
	if (left->tv_nsec < 0) {
		left->tv_sec--;
		left->tv_nsec += 1000000000;
	}
	return left->tv_sec >= 0;
}

/* As ppoll(2), with the GIL released. */
static int wait_for(struct pollfd *descriptors, const struct timespec *left)
{
	int ready;
	Py_BEGIN_ALLOW_THREADS
	ready = ppoll(descriptors, 3, left, NULL);
	Py_END_ALLOW_THREADS
	return ready;
}

bool event_loop_wait_serve(int fd, int events, int handed_over, double seconds)
{
	if (request_buffer_size() == 0 || request.waits)
		return false;
	request.handed_over = handed_over;
	interrupted = false;
	struct pollfd descriptors[3] = {{.fd = fd, .events = POLLIN}, {.fd = events, .events = POLLIN}, {.events = POLLIN}};
	struct timespec end = after(seconds), left;
	for (;;) {
		if (answer_all(fd, seconds > 0))
			return false;
		if (interrupted || !remaining(&end, &left))
			return true;
		descriptors[2].fd = file_data_failures();
		int ready = wait_for(descriptors, &left);
		if (ready < 0 && errno == EINTR)
			continue; /* a signal for the loop: its handler makes `events` readable */
		eventfd_t ignored;
		if (ready > 0 && descriptors[2].revents != 0)
			(void)!eventfd_read(descriptors[2].fd, &ignored);
		if (ready < 0 || descriptors[1].revents != 0)
			return false;
	}
}
