/* See entries.h. */
#include "entries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "wire.h"

#define ALIGNED(bytes) (((bytes) + 7) & ~(size_t)7)
#define NAME_AT offsetof(struct dirent64, d_name)
#define READ_BYTES 32768

_Static_assert(NAME_AT == 19, "struct linux_dirent64");

/* An offset leads to the same entry as long as the entry is there, whatever happens to others. With tmpfs before Linux 6.6, to
 * name one, it counts entries. */
static bool offsets_last(int directory)
{
	struct statfs disk;
	return fstatfs(directory, &disk) == 0 &&
	       (disk.f_type == EXT4_SUPER_MAGIC || disk.f_type == XFS_SUPER_MAGIC || disk.f_type == BTRFS_SUPER_MAGIC);
}

/* The number to be told instead of `inode`, which is most often itself; 0 after an exception. */
static uint64_t told(uint64_t inode, PyObject *others)
{
	PyObject *key = PyLong_FromUnsignedLongLong(inode);
	PyObject *value = key ? PyDict_GetItemWithError(others, key) : NULL;
	Py_XDECREF(key);
	if (value != NULL)
		return PyLong_AsUnsignedLongLong(value);
	return PyErr_Occurred() ? 0 : inode;
}

/* Write one entry to `place`; return its size. */
static size_t put(unsigned char *place, const unsigned char *read, uint64_t inode)
{
	struct dirent64 entry;
	memcpy(&entry, read, NAME_AT);
	const char *name = (const char *)read + NAME_AT;
	struct directory_entry head = {
		.inode = inode,
		.offset = (uint64_t)entry.d_off,
		.name_bytes = (uint32_t)strlen(name),
		.kind = entry.d_type,
	};
	size_t whole = ALIGNED(sizeof(head) + head.name_bytes);
	memset(place + whole - 8, 0, 8);
	memcpy(place, &head, sizeof(head));
	memcpy(place + sizeof(head), name, head.name_bytes);
	return whole;
}

static PyObject *converted(const unsigned char *read, size_t got, PyObject *others)
{
	/* An entry grows by 8 bytes at most, and has at least 24. */
	unsigned char *body = PyMem_Malloc(got + got / 3);
	if (body == NULL)
		return PyErr_NoMemory();
	size_t used = 0;
	PyObject *result = NULL;
	for (size_t at = 0; at < got;) {
		struct dirent64 entry;
		memcpy(&entry, read + at, NAME_AT);
		uint64_t inode = told(entry.d_ino, others);
		if (inode == 0 && PyErr_Occurred())
			goto out;
		used += put(body + used, read + at, inode);
		at += entry.d_reclen;
	}
	result = PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)used);
out:
	PyMem_Free(body);
	return result;
}

/* Read from `position` on; -1 when that fails. A descriptor that is read for the first time has no memory of earlier positions;
 * ext4's goes wrong: who begins at the end, as after a takeover, and then at the start, is told that the directory is empty. */
static long read_from(int directory, uint64_t position, void *buffer, size_t size)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	long got = lseek(fd, (off_t)position, SEEK_SET) < 0 ? -1 : syscall(SYS_getdents64, fd, buffer, size);
	int error = errno;
	close(fd);
	errno = error;
	return got;
}

PyObject *entries_read(int directory, uint64_t position, size_t size, PyObject *others)
{
	unsigned char read[READ_BYTES];
	size_t most = size / 4 * 3; /* see converted() */
	if (!offsets_last(directory))
		Py_RETURN_NONE;
	long got = read_from(directory, position, read, most < sizeof(read) ? most : sizeof(read));
	if (got < 0)
		return PyErr_SetFromErrno(PyExc_OSError);
	return converted(read, (size_t)got, others);
}
