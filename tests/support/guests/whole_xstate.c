/* Lets user-mode Linux of before 6.13 run on processors with AMX.
 *
 * Its buffer for the extended registers of a process has 2,696 bytes, enough up to AVX-512. Reading into it cuts off what is more.
 * But the host takes back only the whole (PTRACE_SETREGSET, EFAULT otherwise), and the guest panics. So what it lacks is added: the
 * tiles of AMX, as the process has them, which no program gets without asking for them (arch_prctl(2)).
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define XSTATE 0x202 /* NT_X86_XSTATE */
#define MOST 32768

typedef long trace(int request, pid_t process, void *address, void *data);

long ptrace(enum __ptrace_request request, ...)
{
	static trace *next;
	static char whole[MOST];
	va_list rest;
	va_start(rest, request);
	pid_t process = va_arg(rest, pid_t);
	void *address = va_arg(rest, void *);
	void *data = va_arg(rest, void *);
	va_end(rest);
	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "ptrace");
	if ((int)request == PTRACE_SETREGSET && (long)address == XSTATE) {
		const struct iovec *given = data;
		struct iovec all = {whole, MOST};
		if (next(PTRACE_GETREGSET, process, address, &all) == 0 && given->iov_len < all.iov_len) {
			memcpy(whole, given->iov_base, given->iov_len);
			return next(request, process, address, &all);
		}
	}
	return next((int)request, process, address, data);
}
