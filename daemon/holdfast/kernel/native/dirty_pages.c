/* See dirty_pages.h. */
#include "dirty_pages.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Nobody fills memory faster than that. */
#define BYTES_PER_NS 4
#define LONGEST_NS INT64_C(1000000000)
/* Above this part of the limit, in percent, no write counts as free. */
#define FREE_PERCENT 75
#define FIRST_LINES 4096 /* of /proc/vmstat, which are read at once; what is wanted is in their first half */

/* The number behind a name, which begins with a line feed and ends with a space; -1 if there is none. */
static int64_t number(const char *lines, const char *name)
{
	const char *found = strstr(lines, name);
	return found == NULL ? -1 : atoll(found + strlen(name));
}

int64_t dirty_pages_free_ns(void)
{
	static int fd = -1;
	static char lines[FIRST_LINES + 1];
	if (fd < 0)
		fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : pread(fd, lines, FIRST_LINES, 0);
	if (got <= 0)
		return LONGEST_NS;
	lines[got] = '\0';
	int64_t dirty = number(lines, "\nnr_dirty "), writeback = number(lines, "\nnr_writeback ");
	int64_t most = number(lines, "\nnr_dirty_threshold "), background = number(lines, "\nnr_dirty_background_threshold ");
	if (dirty < 0 || writeback < 0 || most < 0 || background < 0)
		return LONGEST_NS;
	int64_t free_pages = (most + background) / 2 * FREE_PERCENT / 100 - dirty - writeback;
	if (free_pages <= 0)
		return 0;
	int64_t free_ns = free_pages * sysconf(_SC_PAGESIZE) / BYTES_PER_NS;
	return free_ns < LONGEST_NS ? free_ns : LONGEST_NS;
}
