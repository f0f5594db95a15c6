/* Setting the handler of python_replies.h; separate, so that only module.c and python_replies.c need Python.h for it. */
#ifndef HOLDFAST_PYTHON_REPLIES_HANDLER_H
#define HOLDFAST_PYTHON_REPLIES_HANDLER_H

#include <Python.h>
#include <stdint.h>

/* Call `function` first for all requests whose opcode's bit is set in `opcodes`; NULL: no handler. */
void python_replies_set_handler(PyObject *function, uint64_t opcodes);

/* Call `function` with each request that is refused (execution_mark.h); NULL: nobody is told. */
void python_replies_set_refusal_handler(PyObject *function);

#endif
