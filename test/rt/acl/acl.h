/* acl.h - the part of the runtime's interface that mock_acl.c has, for programs that are built against it. */
#ifndef MOCK_ACL_H
#define MOCK_ACL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *aclrtStream;
enum { ACL_MEM_MALLOC_HUGE_FIRST = 0, ACL_MEMCPY_HOST_TO_DEVICE = 1, ACL_MEMCPY_DEVICE_TO_HOST = 2 };

int aclInit(const char *config);
int aclrtSetDevice(int32_t device);
int aclrtCreateStream(aclrtStream *stream);
int aclrtDestroyStream(aclrtStream stream);
int aclrtSynchronizeStream(aclrtStream stream);
int aclrtMalloc(void **memory, size_t bytes, int policy);
int aclrtFree(void *memory);
int aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, int kind);
const char *aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif
#endif
