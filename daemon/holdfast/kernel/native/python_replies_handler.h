/* The function that python_replies.h speaks of, for those who know Python. */
#ifndef HOLDFAST_PYTHON_REPLIES_HANDLER_H
#define HOLDFAST_PYTHON_REPLIES_HANDLER_H

#include <Python.h>
#include <stdint.h>

/* Ask `function` first for all kinds of requests whose bit is set in `opcodes`; NULL: nobody is asked. */
void python_replies_set_handler(PyObject *function, uint64_t opcodes);

#endif
