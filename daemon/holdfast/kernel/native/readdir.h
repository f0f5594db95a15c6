/* READDIR replies, made from the entries of a backing directory (getdents64(2)). */
#ifndef HOLDFAST_READDIR_H
#define HOLDFAST_READDIR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* Return the entries of the directory open at `directory` from `position` on, at most `size` bytes of them (280 hold any entry),
 * as a bytes object; an empty one is the end. Their offsets are the backing file system's, so a listing can go on from any
 * offset, with any handle and in any daemon; returns None where that file system is not known to have stable offsets. Their
 * inode numbers are the backing file system's too, except for keys of the dictionary `others`, which has the number to show
 * instead. NULL with an exception when the directory can't be read. */
PyObject *readdir_read(int directory, uint64_t position, size_t size, PyObject *others);

#endif
