/* The bodies of replies with attributes, made from what os.stat returns, or from an object with the same fields. In Python
 * they take a microsecond, a tenth of what it takes to answer a request. */
#ifndef HOLDFAST_ATTRIBUTE_BODIES_H
#define HOLDFAST_ATTRIBUTE_BODIES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* Return a struct fuse_attr_out as a bytes object. The kernel may cache it for so many seconds. NULL with an exception. */
PyObject *attribute_bodies_attributes(uint64_t node, PyObject *stat, double seconds);

/* Return a struct fuse_entry_out. The kernel may cache name and attributes for so many seconds. NULL with an exception. */
PyObject *attribute_bodies_entry(uint64_t node, PyObject *stat, double seconds);

#endif
