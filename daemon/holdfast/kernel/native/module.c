/* The functions of the Python module _holdfast_kernel. Their types are in _holdfast_kernel.pyi. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "attribute_bodies.h"
#include "python_replies.h"
#include "python_replies_handler.h"
#include "readdir.h"
#include "handshake.h"
#include "event_loop_wait.h"
#include "request_buffer.h"
#include "execution_mark.h"
#include "file_data.h"
#include "device_io.h"
#include "latency_counts.h"
#include "native_replies.h"
#include "mounting.h"
#include "reply_edits.h"
#include "wire.h"

/* What latency_counts.c counts in, kept while it does. */
static Py_buffer counted_rows, counted_bounds, counted_zone;

static void release_counted(void)
{
	latency_counts_reset();
	PyBuffer_Release(&counted_rows);
	PyBuffer_Release(&counted_bounds);
	PyBuffer_Release(&counted_zone);
}

/* What execution_mark.c marks in and compares with, kept while it does. */
static Py_buffer marked_word, refused_numbers;

static void release_marked(void)
{
	execution_mark_reset();
	PyBuffer_Release(&marked_word);
	PyBuffer_Release(&refused_numbers);
}

static PyObject *configure(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned long long add;
	Py_buffer path, request, reply;
	int resend;
	if (!PyArg_ParseTuple(args, "Ky*py*y*", &add, &path, &resend, &request, &reply))
		return NULL;
	handshake_reset();
	python_replies_reset();
	native_replies_reset();
	event_loop_wait_reset();
	request_buffer_reset();
	release_counted();
	release_marked();
	reply_edits_reset();
	device_io_reset();
	mounting_reset();
	bool good = (size_t)path.len < sizeof(handshake.keep_path);
	if (!good) {
		PyErr_SetString(PyExc_ValueError, "the path is too long");
	} else if (request.len > 0 && !handshake_take(request.buf, (size_t)request.len, reply.buf, (size_t)reply.len)) {
		good = false;
		PyErr_SetString(PyExc_ValueError, "this is no exchange that was kept");
	}
	if (good) {
		memcpy(handshake.keep_path, path.buf, (size_t)path.len);
		handshake.add = add;
		handshake.resend = resend;
		mounting.wanted = true;
	}
	PyBuffer_Release(&path);
	PyBuffer_Release(&request);
	PyBuffer_Release(&reply);
	if (!good)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *session(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return Py_BuildValue("(iiisKKi)", mounting.state, mounting.fd, mounting.error, mounting.libfuse_version,
			     (unsigned long long)handshake.offered, (unsigned long long)handshake.agreed, handshake.keep_error);
}

/* The descriptor is about to be closed; its number may be used again for another file. */
static PyObject *end(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	file_data_end();
	python_replies_reset();
	release_marked();
	Py_RETURN_NONE;
}

static PyObject *request(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyLong_FromUnsignedLongLong(device_io_current());
}

static PyObject *drops(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyBool_FromLong(device_io_current_drops());
}

static PyObject *user(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyLong_FromUnsignedLong(device_io_current_user());
}

static PyObject *process(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyLong_FromUnsignedLong(device_io_current_process());
}

static PyObject *count_latencies(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned int zones;
	release_counted();
	if (!PyArg_ParseTuple(args, "w*Iy*w*", &counted_rows, &zones, &counted_bounds, &counted_zone))
		return NULL;
	size_t bounds = (size_t)counted_bounds.len / sizeof(uint64_t);
	if ((size_t)counted_rows.len != OPCODE_LIMIT * zones * (bounds + 2) * sizeof(uint64_t) ||
	    (size_t)counted_zone.len != sizeof(uint32_t)) {
		release_counted();
		PyErr_SetString(PyExc_ValueError, "the arrays have other sizes");
		return NULL;
	}
	latency_counts_use(counted_rows.buf, zones, counted_bounds.buf, bounds, counted_zone.buf);
	Py_RETURN_NONE;
}

static PyObject *mark_execution(PyObject *self, PyObject *args)
{
	(void)self;
	PyObject *function;
	release_marked();
	if (!PyArg_ParseTuple(args, "w*y*O", &marked_word, &refused_numbers, &function))
		return NULL;
	if ((size_t)marked_word.len != sizeof(uint64_t) || (size_t)refused_numbers.len % sizeof(uint64_t) != 0) {
		release_marked();
		PyErr_SetString(PyExc_ValueError, "these are no numbers of requests");
		return NULL;
	}
	execution_mark_use(marked_word.buf, refused_numbers.buf, (size_t)refused_numbers.len / sizeof(uint64_t));
	python_replies_set_refusal_handler(function);
	Py_RETURN_NONE;
}

static PyObject *executing(PyObject *self, PyObject *number)
{
	(void)self;
	unsigned long long unique = PyLong_AsUnsignedLongLong(number);
	if (unique == (unsigned long long)-1 && PyErr_Occurred() != NULL)
		return NULL;
	execution_mark_set(unique);
	Py_RETURN_NONE;
}

static PyObject *enable_native_replies(PyObject *self, PyObject *args)
{
	(void)self;
	int enabled;
	if (!PyArg_ParseTuple(args, "p", &enabled))
		return NULL;
	native_replies_enable(enabled);
	Py_RETURN_NONE;
}

static PyObject *answer(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned long long unique;
	struct reply_edit edit;
	if (!PyArg_ParseTuple(args, "KiI", &unique, &edit.backing_id, &edit.flags))
		return NULL;
	edit.unique = unique;
	if (!reply_edits_add(&edit))
		return PyErr_NoMemory();
	Py_RETURN_NONE;
}

static PyObject *answer_directly(PyObject *self, PyObject *args)
{
	(void)self;
	PyObject *function;
	unsigned long long opcodes;
	if (!PyArg_ParseTuple(args, "OK", &function, &opcodes))
		return NULL;
	python_replies_set_handler(function == Py_None ? NULL : function, opcodes);
	Py_RETURN_NONE;
}

static PyObject *reply(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned long long unique;
	int error;
	Py_buffer body;
	if (!PyArg_ParseTuple(args, "Kiy*", &unique, &error, &body))
		return NULL;
	python_replies_reply(mounting.fd, unique, error, body.buf, (size_t)body.len);
	PyBuffer_Release(&body);
	Py_RETURN_NONE;
}

static PyObject *serve(PyObject *self, PyObject *args)
{
	(void)self;
	int events, handed_over;
	double seconds;
	if (!PyArg_ParseTuple(args, "iid", &events, &handed_over, &seconds))
		return NULL;
	return PyBool_FromLong(event_loop_wait_serve(mounting.fd, events, handed_over, seconds));
}

static PyObject *interrupt(PyObject *self, PyObject *task)
{
	(void)self;
	(void)task;
	event_loop_wait_interrupt();
	Py_RETURN_NONE;
}

static PyObject *add_native_reply(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned long long node, nanoseconds;
	int fd, kind;
	unsigned int zone;
	if (!PyArg_ParseTuple(args, "KiiKI", &node, &fd, &kind, &nanoseconds, &zone))
		return NULL;
	if (kind < 0 || kind >= NATIVE_REPLY_KINDS) {
		PyErr_SetString(PyExc_ValueError, "there is no such kind");
		return NULL;
	}
	if (!native_replies_add(node, fd, (enum native_reply_kind)kind, nanoseconds, zone))
		return PyErr_NoMemory();
	Py_RETURN_NONE;
}

static PyObject *hold_writes(PyObject *self, PyObject *held)
{
	(void)self;
	int is_held = PyObject_IsTrue(held);
	if (is_held < 0)
		return NULL;
	file_data_hold_writes(is_held != 0);
	Py_RETURN_NONE;
}

static bool to_descriptor(PyObject *number, int *fd)
{
	*fd = (int)PyLong_AsLong(number);
	return *fd != -1 || PyErr_Occurred() == NULL;
}

static PyObject *is_written(PyObject *self, PyObject *descriptor)
{
	(void)self;
	int fd;
	return to_descriptor(descriptor, &fd) ? PyBool_FromLong(file_data_is_written(fd)) : NULL;
}

static PyObject *hold_back(PyObject *self, PyObject *descriptor)
{
	(void)self;
	int fd;
	return to_descriptor(descriptor, &fd) ? PyBool_FromLong(file_data_hold_back(fd)) : NULL;
}

static PyObject *let_go(PyObject *self, PyObject *descriptor)
{
	(void)self;
	int fd;
	if (!to_descriptor(descriptor, &fd))
		return NULL;
	file_data_let_go(fd);
	Py_RETURN_NONE;
}

static PyObject *remove_native_reply(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned long long node;
	if (!PyArg_ParseTuple(args, "K", &node))
		return NULL;
	native_replies_remove(node);
	Py_RETURN_NONE;
}

static PyObject *register_file(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned long long node;
	int device, fd;
	unsigned int zone;
	if (!PyArg_ParseTuple(args, "iKiI", &device, &node, &fd, &zone))
		return NULL;
	struct backing_map map = {.fd = fd};
	int backing_id = ioctl(device, BACKING_OPEN, &map);
	if (backing_id < 0)
		return PyErr_SetFromErrno(PyExc_OSError);
	if (!native_replies_add(node, fd, NATIVE_REPLY_FILE, 0, zone)) {
		ioctl(device, BACKING_CLOSE, &(uint32_t){(uint32_t)backing_id});
		return PyErr_NoMemory();
	}
	return PyLong_FromLong(backing_id);
}

static PyObject *unregister_file(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned long long node;
	int device;
	uint32_t backing_id;
	if (!PyArg_ParseTuple(args, "iKI", &device, &node, &backing_id))
		return NULL;
	native_replies_remove(node);
	if (ioctl(device, BACKING_CLOSE, &backing_id) < 0)
		return PyErr_SetFromErrno(PyExc_OSError);
	Py_RETURN_NONE;
}

static PyObject *entries(PyObject *self, PyObject *args)
{
	(void)self;
	unsigned long long position, size;
	int fd;
	PyObject *others;
	if (!PyArg_ParseTuple(args, "iKKO!", &fd, &position, &size, &PyDict_Type, &others))
		return NULL;
	return readdir_read(fd, position, size, others);
}

/* Take node, attributes and seconds. False with an exception. */
static bool attribute_arguments(PyObject *const *args, Py_ssize_t count, uint64_t *node, double *seconds)
{
	if (count != 3) {
		PyErr_SetString(PyExc_TypeError, "node, attributes and seconds are wanted");
		return false;
	}
	*node = PyLong_AsUnsignedLongLong(args[0]);
	*seconds = PyFloat_AsDouble(args[2]);
	return PyErr_Occurred() == NULL;
}

static PyObject *attributes(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	(void)self;
	uint64_t node;
	double seconds;
	return attribute_arguments(args, count, &node, &seconds) ? attribute_bodies_attributes(node, args[1], seconds) : NULL;
}

static PyObject *entry(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
	(void)self;
	uint64_t node;
	double seconds;
	return attribute_arguments(args, count, &node, &seconds) ? attribute_bodies_entry(node, args[1], seconds) : NULL;
}

static PyObject *counts(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	PyObject *requests = PyTuple_New(OPCODE_LIMIT);
	if (requests == NULL)
		return NULL;
	for (Py_ssize_t i = 0; i < OPCODE_LIMIT; i++) {
		PyObject *number = PyLong_FromUnsignedLongLong(device_io_requests[i]);
		if (number == NULL) {
			Py_DECREF(requests);
			return NULL;
		}
		PyTuple_SET_ITEM(requests, i, number);
	}
	return Py_BuildValue("(NKK)", requests, (unsigned long long)device_io_replies, (unsigned long long)device_io_notifications);
}

static PyMethodDef methods[] = {
	{"configure", configure, METH_VARARGS, PyDoc_STR("Configure the next mount of this process.")},
	{"session", session, METH_NOARGS, PyDoc_STR("Return the state of the mount and of the INIT exchange.")},
	{"end", end, METH_NOARGS, PyDoc_STR("Stop replying: the mount's descriptor is about to be closed.")},
	{"request", request, METH_NOARGS, PyDoc_STR("Return the unique number of the request read last.")},
	{"drops", drops, METH_NOARGS, PyDoc_STR("Say whether that request removes set-id bits and capabilities.")},
	{"user", user, METH_NOARGS, PyDoc_STR("Return the user id of the caller of that request.")},
	{"process", process, METH_NOARGS, PyDoc_STR("Return the process id of the caller of that request.")},
	{"count_latencies", count_latencies, METH_VARARGS, PyDoc_STR("Count how long requests take in these arrays.")},
	{"mark_execution", mark_execution, METH_VARARGS, PyDoc_STR("Mark the request that is executed, and refuse some.")},
	{"executing", executing, METH_O, PyDoc_STR("Mark this request as executed; 0: none.")},
	{"enable_native_replies", enable_native_replies, METH_VARARGS, PyDoc_STR("Whether to answer requests from descriptors.")},
	{"answer", answer, METH_VARARGS, PyDoc_STR("Set backing id and flags in the reply to an OPEN, OPENDIR or CREATE.")},
	{"answer_directly", answer_directly, METH_VARARGS, PyDoc_STR("Set the function that is called before pyfuse3.")},
	{"reply", reply, METH_VARARGS, PyDoc_STR("Reply to a request for which that function returned True.")},
	{"serve", serve, METH_VARARGS, PyDoc_STR("Answer requests while the event loop sleeps.")},
	{"interrupt", interrupt, METH_O, PyDoc_STR("Make serve return after the current request: a task was scheduled.")},
	{"add_native_reply", add_native_reply, METH_VARARGS, PyDoc_STR("Answer some requests for a file or directory from its descriptor.")},
	{"remove_native_reply", remove_native_reply, METH_VARARGS, PyDoc_STR("Stop answering for a file or directory.")},
	{"register", register_file, METH_VARARGS, PyDoc_STR("Register a file for passthrough; return its backing id.")},
	{"unregister", unregister_file, METH_VARARGS, PyDoc_STR("Close a backing id.")},
	{"is_written", is_written, METH_O, PyDoc_STR("Whether threads have writes to the file lent with a descriptor.")},
	{"hold_back", hold_back, METH_O, PyDoc_STR("Begin no further write to that file; whether one is under way.")},
	{"let_go", let_go, METH_O, PyDoc_STR("Begin writes to that file again.")},
	{"hold_writes", hold_writes, METH_O, PyDoc_STR("Whether to answer no writes of data.")},
	{"entries", entries, METH_VARARGS, PyDoc_STR("Return entries of a backing directory in the format of READDIR.")},
	{"attributes", (PyCFunction)(void (*)(void))attributes, METH_FASTCALL, PyDoc_STR("Return the body of a reply to GETATTR.")},
	{"entry", (PyCFunction)(void (*)(void))entry, METH_FASTCALL, PyDoc_STR("Return the body of a reply to LOOKUP.")},
	{"counts", counts, METH_NOARGS, PyDoc_STR("Return the numbers of requests by opcode, of replies and of notifications.")},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "_holdfast_kernel",
	.m_doc = PyDoc_STR("I/O functions between pyfuse3's libfuse and /dev/fuse."),
	.m_size = -1, /* one state for the process: callbacks from libfuse don't know the interpreter */
	.m_methods = methods,
};

PyMODINIT_FUNC PyInit__holdfast_kernel(void)
{
	return PyModule_Create(&definition);
}
