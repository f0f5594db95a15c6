/* See reply_edits.h. */
#include "reply_edits.h"

#include <stdlib.h>
#include <string.h>

#include "wire.h"

/* An edit exists from a handler's last line to the reply, so there is one at a time, seldom two: a linear search is fastest. */
static struct reply_edit *edits;
static size_t used;
static size_t room;

static struct reply_edit *find(uint64_t unique)
{
	for (size_t i = 0; i < used; i++)
		if (edits[i].unique == unique)
			return &edits[i];
	return NULL;
}

static bool grow(void)
{
	size_t wanted = room ? room * 2 : 16;
	struct reply_edit *larger = realloc(edits, wanted * sizeof(*larger));
	if (larger == NULL)
		return false;
	edits = larger;
	room = wanted;
	return true;
}

bool reply_edits_add(const struct reply_edit *edit)
{
	struct reply_edit *slot = find(edit->unique);
	if (slot == NULL) {
		if (used == room && !grow())
			return false;
		slot = &edits[used++];
	}
	*slot = *edit;
	return true;
}

bool reply_edits_take(uint64_t unique, struct reply_edit *edit)
{
	struct reply_edit *slot = find(unique);
	if (slot == NULL)
		return false;
	*edit = *slot;
	*slot = edits[--used];
	return true;
}

void reply_edits_reset(void)
{
	free(edits);
	edits = NULL;
	used = room = 0;
}

/* The offset of the open_reply in a body of `size` bytes; -1 when there is none. */
static ssize_t open_reply_at(size_t size)
{
	if (size == sizeof(struct open_reply))
		return 0;
	if (size == ENTRY_BYTES + sizeof(struct open_reply))
		return ENTRY_BYTES;
	return -1;
}

static void apply(const struct reply_edit *edit, struct open_reply *reply)
{
	reply->flags |= edit->flags & ~OPEN_PASSTHROUGH; /* set only together with a backing id */
	if (edit->backing_id > 0) {
		reply->flags = (reply->flags & OPEN_WITH_PASSTHROUGH) | OPEN_PASSTHROUGH;
		reply->backing_id = edit->backing_id;
	}
}

ssize_t reply_edits_write(int fd, const struct iovec *parts, int count, const struct reply_edit *edit)
{
	ssize_t at = count == 2 ? open_reply_at(parts[1].iov_len) : -1;
	if (at < 0)
		return writev(fd, parts, count); /* an error reply */
	unsigned char body[ENTRY_BYTES + sizeof(struct open_reply)];
	struct open_reply reply;
	memcpy(body, parts[1].iov_base, parts[1].iov_len);
	memcpy(&reply, body + at, sizeof(reply));
	apply(edit, &reply);
	memcpy(body + at, &reply, sizeof(reply));
	struct iovec changed[2] = {parts[0], {body, parts[1].iov_len}};
	return writev(fd, changed, 2);
}
