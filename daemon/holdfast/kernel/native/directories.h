/* Directories for which two kinds of requests are answered here, without Python.
 *
 * Whoever makes many files in a directory has the kernel ask, for each, what became of the directory's attributes, and whether
 * the new name is free. In a directory that only this daemon changes the backing directory knows both. So the file system
 * lends its descriptors of such directories.
 */
#ifndef HOLDFAST_DIRECTORIES_H
#define HOLDFAST_DIRECTORIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Answer for the directory `node` from the backing directory open at `fd`, which stays the caller's; what is said holds for
 * `seconds`. False when memory is short. */
bool directories_lend(uint64_t node, int fd, uint64_t seconds);

/* Stop that: the descriptor is about to be closed. */
void directories_take_back(uint64_t node);

/* Answer a request, if it is GETATTR of such a directory, or LOOKUP of a name that is not in it. */
bool directories_answer(int fd, const unsigned char *request, size_t size);

void directories_reset(void);

#endif
