/* See attribute_bodies.h. */
#include "attribute_bodies.h"

#include <stdbool.h>

#include "wire.h"

#define SECOND 1000000000

enum field { SIZE, BLOCKS, ACCESSED, MODIFIED, CHANGED, MODE, LINKS, UID, GID, DEVICE, BLOCK_BYTES, FIELDS };

static const char *const names[FIELDS] = {
	[SIZE] = "st_size", [BLOCKS] = "st_blocks", [ACCESSED] = "st_atime_ns", [MODIFIED] = "st_mtime_ns",
	[CHANGED] = "st_ctime_ns", [MODE] = "st_mode", [LINKS] = "st_nlink", [UID] = "st_uid", [GID] = "st_gid",
	[DEVICE] = "st_rdev", [BLOCK_BYTES] = "st_blksize",
};

static PyObject *name_of(enum field field)
{
	static PyObject *interned[FIELDS];
	if (interned[field] == NULL)
		interned[field] = PyUnicode_InternFromString(names[field]);
	return interned[field];
}

static PyObject *get(PyObject *stat, enum field field)
{
	PyObject *name = name_of(field);
	return name == NULL ? NULL : PyObject_GetAttr(stat, name);
}

/* False with an exception. */
static bool number(PyObject *stat, enum field field, uint64_t *found)
{
	PyObject *value = get(stat, field);
	if (value == NULL)
		return false;
	*found = PyLong_AsUnsignedLongLongMask(value);
	Py_DECREF(value);
	return *found != (uint64_t)-1 || PyErr_Occurred() == NULL;
}

static bool short_number(PyObject *stat, enum field field, uint32_t *found)
{
	uint64_t whole = 0;
	bool good = number(stat, field, &whole);
	*found = (uint32_t)whole;
	return good;
}

/* Split nanoseconds that don't fit into 64 bits, as from the year 2262 on. */
static bool split_long(PyObject *value, uint64_t *seconds, uint32_t *rest)
{
	PyObject *second = PyLong_FromLong(SECOND), *pair = second == NULL ? NULL : PyNumber_Divmod(value, second);
	Py_XDECREF(second);
	if (pair == NULL)
		return false;
	*seconds = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(pair, 0));
	*rest = (uint32_t)PyLong_AsUnsignedLongMask(PyTuple_GET_ITEM(pair, 1));
	Py_DECREF(pair);
	return PyErr_Occurred() == NULL;
}

/* Split a field's nanoseconds since the epoch, which are negative before 1970. False with an exception. */
static bool split(PyObject *stat, enum field field, uint64_t *seconds, uint32_t *rest)
{
	PyObject *value = get(stat, field);
	if (value == NULL)
		return false;
	int overflow;
	long long nanoseconds = PyLong_AsLongLongAndOverflow(value, &overflow);
	bool good = overflow ? split_long(value, seconds, rest) : PyErr_Occurred() == NULL;
	if (good && !overflow) {
		long long after = nanoseconds % SECOND < 0 ? nanoseconds % SECOND + SECOND : nanoseconds % SECOND;
		*seconds = (uint64_t)((nanoseconds - after) / SECOND);
		*rest = (uint32_t)after;
	}
	Py_DECREF(value);
	return good;
}

/* False with an exception. */
static bool fill(struct attributes *attributes, uint64_t node, PyObject *stat)
{
	attributes->inode = node;
	return number(stat, SIZE, &attributes->size) && number(stat, BLOCKS, &attributes->blocks) &&
	       short_number(stat, MODE, &attributes->mode) && short_number(stat, LINKS, &attributes->links) &&
	       short_number(stat, UID, &attributes->uid) && short_number(stat, GID, &attributes->gid) &&
	       short_number(stat, DEVICE, &attributes->device) && short_number(stat, BLOCK_BYTES, &attributes->block_bytes) &&
	       split(stat, ACCESSED, &attributes->accessed, &attributes->accessed_ns) &&
	       split(stat, MODIFIED, &attributes->modified, &attributes->modified_ns) &&
	       split(stat, CHANGED, &attributes->changed, &attributes->changed_ns);
}

static uint32_t nanoseconds_of(double seconds)
{
	return (uint32_t)((seconds - (double)(uint64_t)seconds) * SECOND);
}

PyObject *attribute_bodies_attributes(uint64_t node, PyObject *stat, double seconds)
{
	struct attributes_reply reply = {.valid = (uint64_t)seconds, .valid_ns = nanoseconds_of(seconds)};
	if (!fill(&reply.attributes, node, stat))
		return NULL;
	return PyBytes_FromStringAndSize((const char *)&reply, sizeof(reply));
}

PyObject *attribute_bodies_entry(uint64_t node, PyObject *stat, double seconds)
{
	struct entry_reply reply = {.node = node, .entry_valid = (uint64_t)seconds, .attributes_valid = (uint64_t)seconds};
	reply.entry_valid_ns = reply.attributes_valid_ns = nanoseconds_of(seconds);
	if (!fill(&reply.attributes, node, stat))
		return NULL;
	return PyBytes_FromStringAndSize((const char *)&reply, sizeof(reply));
}
