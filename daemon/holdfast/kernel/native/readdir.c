/* See readdir.h. */
#include "readdir.h"

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
#define MOST_BYTES 65536

_Static_assert(NAME_AT == 19, "struct linux_dirent64");

/* Whether offsets are stable: one leads to the same entry as long as that entry exists, whatever happens to others, and a
 * listing ends. On tmpfs before Linux 6.6 an offset counts entries; on btrfs each new name comes after all others, so that a
 * listing may not end. */
static bool offsets_last(int directory)
{
	struct statfs disk;
	return fstatfs(directory, &disk) == 0 && (disk.f_type == EXT4_SUPER_MAGIC || disk.f_type == XFS_SUPER_MAGIC);
}

/* Replace `inode` by the number that `others` has for it, if any. False with an exception. */
static bool mapped(uint64_t *inode, PyObject *others)
{
	PyObject *key = PyLong_FromUnsignedLongLong(*inode);
	if (key == NULL)
		return false;
	PyObject *value = PyDict_GetItemWithError(others, key);
	Py_DECREF(key);
	if (value != NULL)
		*inode = PyLong_AsUnsignedLongLong(value);
	return PyErr_Occurred() == NULL;
}

/* Convert the entries that were read, as far as they fit into `size` bytes at `body`. Returns the number of bytes, or -1 with
 * an exception. */
static Py_ssize_t converted(const unsigned char *read, size_t got, unsigned char *body, size_t size, PyObject *others)
{
	size_t used = 0;
	struct dirent64 entry;
	for (size_t at = 0; at < got; at += entry.d_reclen) {
		memcpy(&entry, read + at, NAME_AT);
		const char *name = (const char *)read + at + NAME_AT;
		struct directory_entry head = {
			.inode = entry.d_ino,
			.offset = (uint64_t)entry.d_off,
			.name_bytes = (uint32_t)strlen(name),
			.kind = entry.d_type,
		};
		size_t whole = ALIGNED(sizeof(head) + head.name_bytes);
		if (used + whole > size)
			break;
		if (!mapped(&head.inode, others))
			return -1;
		memset(body + used + whole - 8, 0, 8);
		memcpy(body + used, &head, sizeof(head));
		memcpy(body + used + sizeof(head), name, head.name_bytes);
		used += whole;
	}
	return (Py_ssize_t)used;
}

/* Read from `position` on; -1 and errno when that fails. This uses a new descriptor each time, because ext4 keeps state with
 * one and goes wrong: after a read at the end, as after a takeover, a read from the start finds the directory empty. */
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

PyObject *readdir_read(int directory, uint64_t position, size_t size, PyObject *others)
{
	unsigned char read[MOST_BYTES], body[MOST_BYTES];
	long got;
	if (!offsets_last(directory))
		Py_RETURN_NONE;
	if (size > MOST_BYTES)
		size = MOST_BYTES;
	Py_BEGIN_ALLOW_THREADS /* this may wait for the disk */
	got = read_from(directory, position, read, size);
	Py_END_ALLOW_THREADS
	if (got < 0)
		return PyErr_SetFromErrno(PyExc_OSError);
	Py_ssize_t used = converted(read, (size_t)got, body, size, others);
	return used < 0 ? NULL : PyBytes_FromStringAndSize((const char *)body, used);
}
