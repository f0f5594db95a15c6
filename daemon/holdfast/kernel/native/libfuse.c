/* See libfuse.h. */
#include "libfuse.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* POSIX has dlsym return a function's address as an object pointer; ISO C has no cast for that. */
#define FIND(handle, name, pointer)                                                                                              \
	do {                                                                                                                     \
		void *found = dlsym(handle, name);                                                                               \
		memcpy(&(pointer), &found, sizeof(pointer));                                                                     \
	} while (0)

bool libfuse_find(struct libfuse *libfuse, void *caller)
{
	Dl_info object;
	if (dladdr(caller, &object) == 0 || object.dli_fname == NULL)
		return false;
	/* A lookup through pyfuse3's handle searches pyfuse3 and the libraries it is linked to, but not this module. */
	void *handle = dlopen(object.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (handle == NULL)
		return false;
	memset(libfuse, 0, sizeof(*libfuse));
	FIND(handle, "fuse_session_mount", libfuse->session_mount);
	FIND(handle, "fuse_session_fd", libfuse->session_fd);
	FIND(handle, "fuse_pkgversion", libfuse->package_version);
	FIND(handle, "fuse_session_custom_io_317", libfuse->custom_io_sized);
	FIND(handle, "fuse_session_custom_io", libfuse->custom_io);
	/* This only drops our reference: pyfuse3, and libfuse with it, stay loaded as long as the process lives. */
	dlclose(handle);
	return libfuse->session_mount != NULL && libfuse->session_fd != NULL;
}

int libfuse_set_io(const struct libfuse *libfuse, struct fuse_session *session, const struct custom_io *io, int fd)
{
	if (libfuse->custom_io_sized != NULL)
		return libfuse->custom_io_sized(session, io, sizeof(*io), fd);
	if (libfuse->custom_io != NULL)
		return libfuse->custom_io(session, io, fd);
	return -ENOSYS;
}
