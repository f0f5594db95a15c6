/* See python_replies.h. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python_replies.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>

#include "python_replies_handler.h"
#include "device_io.h"
#include "latency_counts.h"
#include "wire.h"

/* The longest turn: many requests of 20 µs, and still too short to be noticed. */
#define SLICE_NS INT64_C(1000000)
/* For how long to poll for the next request. After polling in vain the next polls are skipped, so that slow callers lose
 * little processor time to it. */
#define POLL_NS 50000
#define SKIPPED_POLLS 8

static PyObject *handler, *refusal_handler;
static uint64_t wanted; /* a bit for each opcode */

void python_replies_set_handler(PyObject *function, uint64_t opcodes)
{
	Py_XINCREF(function);
	Py_XSETREF(handler, function);
	wanted = opcodes;
}

void python_replies_set_refusal_handler(PyObject *function)
{
	Py_XINCREF(function);
	Py_XSETREF(refusal_handler, function);
}

void python_replies_reset(void)
{
	python_replies_set_handler(NULL, 0);
	python_replies_set_refusal_handler(NULL);
}

void python_replies_reply(int fd, uint64_t unique, int error, const void *body, size_t size)
{
	struct reply_header header = {.error = -error, .unique = unique};
	struct iovec parts[2] = {{&header, sizeof(header)}, {(void *)body, error ? 0 : size}};
	header.length = (uint32_t)(sizeof(header) + parts[1].iov_len);
	device_io_count_reply();
	/* This fails for a request that the kernel has withdrawn, and when the mount has ended, which the next read reports. */
	(void)!writev(fd, parts, parts[1].iov_len ? 2 : 1);
}

static bool takes_no_reply(uint32_t opcode)
{
	return opcode == OPCODE_FORGET || opcode == OPCODE_BATCH_FORGET;
}

static bool wants(const struct request_header *header)
{
	if (handler == NULL || header->opcode >= OPCODE_LIMIT || !(wanted >> header->opcode & 1))
		return false;
	return !(header->unique & UNIQUE_RESENT) || header->opcode == OPCODE_READDIR || header->opcode == OPCODE_READDIRPLUS;
}

/* Call a function with opcode, unique number, node, uid, gid, pid and body. NULL: it raised, or memory is out. */
static PyObject *call(PyObject *function, const struct request_header *header, const unsigned char *request)
{
	enum { ARGUMENTS = 7 };
	PyObject *arguments[ARGUMENTS] = {
		PyLong_FromUnsignedLong(header->opcode),
		PyLong_FromUnsignedLongLong(header->unique),
		PyLong_FromUnsignedLongLong(header->node),
		PyLong_FromUnsignedLong(header->uid),
		PyLong_FromUnsignedLong(header->gid),
		PyLong_FromUnsignedLong(header->pid),
		PyBytes_FromStringAndSize((const char *)request + sizeof(*header), header->length - (Py_ssize_t)sizeof(*header)),
	};
	bool complete = true;
	for (int i = 0; i < ARGUMENTS; i++)
		complete = complete && arguments[i] != NULL;
	PyObject *result = complete ? PyObject_Vectorcall(function, arguments, ARGUMENTS, NULL) : NULL;
	for (int i = 0; i < ARGUMENTS; i++)
		Py_XDECREF(arguments[i]);
	return result;
}

static int number_of(PyObject *result)
{
	long number = PyLong_AsLong(result);
	if (number < 0 && PyErr_Occurred() != NULL) {
		PyErr_WriteUnraisable(handler);
		return EIO;
	}
	return (int)number;
}

/* Act on the handler's result: the body of a reply, an errno (0: success), True (it replies later), None (declined). */
static bool deliver(struct reply_turn *turn, int fd, const struct request_header *header, PyObject *result)
{
	if (result == Py_None)
		return false;
	if (takes_no_reply(header->opcode))
		return true;
	if (result == Py_True)
		turn->yields = turn->waits = true;
	else if (PyBytes_Check(result))
		python_replies_reply(fd, header->unique, 0, PyBytes_AS_STRING(result), (size_t)PyBytes_GET_SIZE(result));
	else
		python_replies_reply(fd, header->unique, number_of(result), NULL, 0);
	return true;
}

bool python_replies_answer(struct reply_turn *turn, int fd, const unsigned char *request, size_t size)
{
	struct request_header header;
	memcpy(&header, request, sizeof(header));
	if (header.length != size || !wants(&header))
		return false;
	PyObject *result = call(handler, &header, request);
	if (result == NULL) {
		PyErr_WriteUnraisable(handler);
		if (!takes_no_reply(header.opcode))
			python_replies_reply(fd, header.unique, EIO, NULL, 0);
		return true;
	}
	bool answered = deliver(turn, fd, &header, result);
	Py_DECREF(result);
	return answered;
}

void python_replies_refuse(int fd, const unsigned char *request, size_t size)
{
	struct request_header header;
	memcpy(&header, request, sizeof(header));
	python_replies_reply(fd, header.unique, EIO, NULL, 0);
	if (refusal_handler == NULL || header.length != size)
		return;
	PyObject *result = call(refusal_handler, &header, request);
	if (result == NULL)
		PyErr_WriteUnraisable(refusal_handler);
	Py_XDECREF(result);
}

void python_replies_begin(struct reply_turn *turn)
{
	*turn = (struct reply_turn){.began = handler == NULL ? 0 : latency_counts_now()};
}

bool python_replies_go_on(struct reply_turn *turn, uint32_t opcode, int64_t read)
{
	turn->answered = latency_counts_now();
	if (!turn->waits)
		latency_counts_add(opcode, turn->answered - read);
	turn->waits = false;
	return turn->answered - turn->began < SLICE_NS;
}

bool python_replies_poll_again(const struct reply_turn *turn)
{
	static unsigned int skip; /* polls to skip, since one was in vain */
	if (turn->answered == 0 || turn->yields)
		return false;
	if (skip > 0) {
		skip--;
		return false;
	}
	if (latency_counts_now() - turn->answered > POLL_NS) {
		skip = SKIPPED_POLLS;
		return false;
	}
	sched_yield();
	return true;
}
