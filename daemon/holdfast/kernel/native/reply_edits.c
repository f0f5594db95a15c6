/* See reply_edits.h. */
#include "reply_edits.h"

#include <stdlib.h>
#include <string.h>

#include "wire.h"

/* Changes wait from a handler's last line to the reply, so there is one at a time, seldom two: a list that is searched is
 * the fastest table. */
static struct change *changes;
static size_t used;
static size_t room;

static struct change *find(uint64_t unique)
{
	for (size_t i = 0; i < used; i++)
		if (changes[i].unique == unique)
			return &changes[i];
	return NULL;
}

static bool grow(void)
{
	size_t wanted = room ? room * 2 : 16;
	struct change *larger = realloc(changes, wanted * sizeof(*larger));
	if (larger == NULL)
		return false;
	changes = larger;
	room = wanted;
	return true;
}

bool reply_edits_ask(const struct change *change)
{
	struct change *place = find(change->unique);
	if (place == NULL) {
		if (used == room && !grow())
			return false;
		place = &changes[used++];
	}
	*place = *change;
	return true;
}

bool reply_edits_take(uint64_t unique, struct change *change)
{
	struct change *place = find(unique);
	if (place == NULL)
		return false;
	*change = *place;
	*place = changes[--used];
	return true;
}

void reply_edits_reset(void)
{
	free(changes);
	changes = NULL;
	used = room = 0;
}

/* Where the open_reply begins in a body of `size` bytes; -1 when there is none. */
static ssize_t open_reply_at(size_t size)
{
	if (size == sizeof(struct open_reply))
		return 0;
	if (size == ENTRY_BYTES + sizeof(struct open_reply))
		return ENTRY_BYTES;
	return -1;
}

static void apply(const struct change *change, struct open_reply *reply)
{
	reply->flags |= change->flags & ~OPEN_PASSTHROUGH; /* which goes with a backing id, and only with one */
	if (change->backing_id > 0) {
		reply->flags = (reply->flags & OPEN_WITH_PASSTHROUGH) | OPEN_PASSTHROUGH;
		reply->backing_id = change->backing_id;
	}
}

ssize_t reply_edits_write(int fd, const struct iovec *parts, int count, const struct change *change)
{
	ssize_t at = count == 2 ? open_reply_at(parts[1].iov_len) : -1;
	if (at < 0)
		return writev(fd, parts, count); /* an error, which opens nothing */
	unsigned char body[ENTRY_BYTES + sizeof(struct open_reply)];
	struct open_reply reply;
	memcpy(body, parts[1].iov_base, parts[1].iov_len);
	memcpy(&reply, body + at, sizeof(reply));
	apply(change, &reply);
	memcpy(body + at, &reply, sizeof(reply));
	struct iovec changed[2] = {parts[0], {body, parts[1].iov_len}};
	return writev(fd, changed, 2);
}
