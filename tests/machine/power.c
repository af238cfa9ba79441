/* A disk that loses what was not synced: preloaded into one process.
 *
 * Files below POWER_UNDER are written as ever. Beside that, what fsync and fdatasync made durable
 * of them is kept in files of the same names in the folder POWER_SHADOW: what a power failure
 * would leave. While the file POWER_FAIL exists, a sync fails with EIO, and, as kernels do after
 * such an error, forgets that those pages were ever to be written: a later sync succeeds, and
 * does not write them.
 *
 * Names are durable at once; so is a file's end when it is cut.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct dirty {
    struct dirty *next;
    char name[NAME_MAX + 1];
    off_t at;
    size_t size;
    char data[];
};

static struct dirty *first, **last = &first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The name of a file that is looked after, without its folder. */
static int named(const char *path, char *name)
{
    const char *under = getenv("POWER_UNDER");
    size_t size = under ? strlen(under) : 0;
    if (!size || strncmp(path, under, size) || path[size] != '/' || strchr(path + size + 1, '/'))
        return 0;
    snprintf(name, NAME_MAX + 1, "%s", path + size + 1);
    return !strstr(name, "-shm") && !strstr(name, ".lock");
}

static int looked_after(int fd, char *name)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got <= 0)
        return 0;
    path[got] = 0;
    return named(path, name);
}

static int shadow(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", getenv("POWER_SHADOW"), name);
    return syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

/* Write, or forget, what waits of a file. */
static void settle(const char *name, int durable)
{
    int fd = durable ? shadow(name) : -1;
    last = &first;
    while (*last) {
        struct dirty *page = *last;
        if (strcmp(page->name, name)) {
            last = &page->next;
            continue;
        }
        if (durable)
            syscall(SYS_pwrite64, fd, page->data, page->size, page->at);
        *last = page->next;
        free(page);
    }
    if (fd >= 0)
        syscall(SYS_close, fd);
}

static int synced(int fd, long call)
{
    char name[NAME_MAX + 1];
    if (!looked_after(fd, name))
        return (int)syscall(call, fd);
    const char *fail = getenv("POWER_FAIL");
    int fails = fail && syscall(SYS_faccessat, AT_FDCWD, fail, F_OK) == 0;
    pthread_mutex_lock(&lock);
    settle(name, !fails);
    pthread_mutex_unlock(&lock);
    if (fails) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, fd);
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

static ssize_t written(int fd, const void *data, size_t size, off_t at)
{
    char name[NAME_MAX + 1];
    ssize_t done = syscall(SYS_pwrite64, fd, data, size, at);
    if (done > 0 && looked_after(fd, name)) {
        struct dirty *page = malloc(sizeof *page + done);
        if (!page)
            abort();
        page->next = NULL;
        strcpy(page->name, name);
        page->at = at;
        page->size = done;
        memcpy(page->data, data, done);
        pthread_mutex_lock(&lock);
        *last = page;
        last = &page->next;
        pthread_mutex_unlock(&lock);
    }
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    return written(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    return written(fd, data, size, at);
}

static int cut(int fd, off_t size)
{
    char name[NAME_MAX + 1];
    int result = (int)syscall(SYS_ftruncate, fd, size);
    if (result == 0 && looked_after(fd, name)) {
        pthread_mutex_lock(&lock);
        int copy = shadow(name);
        struct stat found;
        if (fstat(copy, &found) == 0 && found.st_size > size)
            syscall(SYS_ftruncate, copy, size);
        syscall(SYS_close, copy);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

int ftruncate(int fd, off_t size) { return cut(fd, size); }
int ftruncate64(int fd, off64_t size) { return cut(fd, size); }

int unlink(const char *path)
{
    char name[NAME_MAX + 1], copy[PATH_MAX];
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (result == 0 && named(path, name)) {
        snprintf(copy, sizeof copy, "%s/%s", getenv("POWER_SHADOW"), name);
        pthread_mutex_lock(&lock);
        settle(name, 0);
        syscall(SYS_unlinkat, AT_FDCWD, copy, 0);
        pthread_mutex_unlock(&lock);
    }
    return result;
}
