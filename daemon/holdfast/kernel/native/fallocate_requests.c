/* See fallocate_requests.h. */
#include "fallocate_requests.h"

#include <stdint.h>
#include <string.h>

#include "handshake.h"
#include "wire.h"

static ssize_t fallocate_to_setxattr(unsigned char *buffer, struct request_header header, size_t size)
{
	struct fallocate_request fallocate;
	struct setxattr_request setxattr = {.value_bytes = sizeof(fallocate)};
	size_t head = handshake.agreed & INIT_LONG_SETXATTR ? sizeof(setxattr) : SHORT_SETXATTR_BYTES;
	size_t name = sizeof(header) + head;
	size_t length = name + 1 + sizeof(fallocate);
	if (header.length != sizeof(header) + sizeof(fallocate) || length > size)
		return header.length;
	memcpy(&fallocate, buffer + sizeof(header), sizeof(fallocate));
	header.opcode = OPCODE_SETXATTR;
	header.length = (uint32_t)length;
	memcpy(buffer, &header, sizeof(header));
	memcpy(buffer + sizeof(header), &setxattr, head);
	buffer[name] = '\0';
	memcpy(buffer + name + 1, &fallocate, sizeof(fallocate));
	return (ssize_t)length;
}

ssize_t fallocate_requests_apply(unsigned char *buffer, ssize_t got, size_t size)
{
	struct request_header header;
	memcpy(&header, buffer, sizeof(header));
	if (header.opcode == OPCODE_FALLOCATE && header.length == (size_t)got)
		return fallocate_to_setxattr(buffer, header, size);
	return got;
}
