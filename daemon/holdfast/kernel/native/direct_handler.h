/* The function that direct.h speaks of, for those who know Python. */
#ifndef HOLDFAST_DIRECT_HANDLER_H
#define HOLDFAST_DIRECT_HANDLER_H

#include <Python.h>
#include <stdint.h>

/* Ask `function` first for all kinds of requests whose bit is set in `opcodes`; NULL: nobody is asked. */
void direct_set_handler(PyObject *function, uint64_t opcodes);

#endif
