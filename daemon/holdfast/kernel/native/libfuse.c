/* See library.h. */
#include "libfuse.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* POSIX has dlsym return an object pointer that holds a function's address; ISO C has no cast for that. */
#define FIND(handle, name, pointer)                                                                                              \
	do {                                                                                                                     \
		void *found = dlsym(handle, name);                                                                               \
		memcpy(&(pointer), &found, sizeof(pointer));                                                                     \
	} while (0)

bool library_find(struct library *library, void *caller)
{
	Dl_info object;
	if (dladdr(caller, &object) == 0 || object.dli_fname == NULL)
		return false;
	/* A handle on pyfuse3 searches pyfuse3 and what it is linked to, and so passes over this module's own symbols. */
	void *handle = dlopen(object.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (handle == NULL)
		return false;
	memset(library, 0, sizeof(*library));
	FIND(handle, "fuse_session_mount", library->session_mount);
	FIND(handle, "fuse_session_fd", library->session_fd);
	FIND(handle, "fuse_pkgversion", library->package_version);
	FIND(handle, "fuse_session_custom_io_317", library->custom_io_sized);
	FIND(handle, "fuse_session_custom_io", library->custom_io);
	/* pyfuse3 stays loaded as long as the process lives, and libfuse with it: only our count on it goes. */
	dlclose(handle);
	return library->session_mount != NULL && library->session_fd != NULL;
}

int library_set_io(const struct library *library, struct fuse_session *session, const struct custom_io *io, int fd)
{
	if (library->custom_io_sized != NULL)
		return library->custom_io_sized(session, io, sizeof(*io), fd);
	if (library->custom_io != NULL)
		return library->custom_io(session, io, fd);
	return -ENOSYS;
}
