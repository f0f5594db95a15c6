/* See execution_mark.h. */
#include "execution_mark.h"

#include "wire.h"

/* Where marks go while Python has given no word. */
static uint64_t nowhere;
static volatile uint64_t *word = &nowhere;
static const uint64_t *refused;
static size_t refused_count;

void execution_mark_use(uint64_t *new_word, const uint64_t *new_refused, size_t new_refused_count)
{
	word = new_word;
	refused = new_refused;
	refused_count = new_refused_count;
}

void execution_mark_reset(void)
{
	*word = 0;
	word = &nowhere;
	refused = NULL;
	refused_count = 0;
}

void execution_mark_set(uint64_t unique)
{
	*word = unique & ~UNIQUE_RESENT;
}

void execution_mark_replied(uint64_t unique)
{
	if (*word == (unique & ~UNIQUE_RESENT))
		*word = 0;
}

bool execution_mark_refuses(uint64_t unique)
{
	if (!(unique & UNIQUE_RESENT))
		return false;
	for (size_t i = 0; i < refused_count; i++)
		if (refused[i] == (unique & ~UNIQUE_RESENT))
			return true;
	return false;
}
