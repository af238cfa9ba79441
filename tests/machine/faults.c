/* A machine that fails: preloaded into one process, told what to do by files.
 *
 * FAULTS is a folder. While it has a file of one of these names, the calls of that process fail
 * (or lie) so; its content is a number.
 *
 *   fsync   fsync and fdatasync of files below FAULTS_UNDER fail with this errno; the data that
 *           was to be made durable is what a kernel makes of it after such an error: anything
 *   slow    the same calls take so many milliseconds longer
 *   write   write, pwrite and ftruncate fail with this errno
 *   read    pread fails with this errno
 *   clock   CLOCK_REALTIME is so many milliseconds off; CLOCK_MONOTONIC is not
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long told(const char *name)
{
    const char *folder = getenv("FAULTS");
    char path[PATH_MAX], text[32];
    if (!folder)
        return 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (got <= 0)
        return 0;
    text[got] = 0;
    return strtol(text, NULL, 10);
}

static int concerned(int fd)
{
    const char *under = getenv("FAULTS_UNDER");
    char link[64], path[PATH_MAX];
    if (!under)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got <= 0)
        return 0;
    path[got] = 0;
    return strncmp(path, under, strlen(under)) == 0;
}

static int fails(const char *name, int fd)
{
    long number = told(name);
    if (!number || !concerned(fd))
        return 0;
    errno = (int)number;
    return 1;
}

static void slowly(int fd)
{
    long ms = told("slow");
    if (ms && concerned(fd)) {
        struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
    }
}

int fsync(int fd)
{
    slowly(fd);
    return fails("fsync", fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    slowly(fd);
    return fails("fsync", fd) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

ssize_t write(int fd, const void *data, size_t size)
{
    return fails("write", fd) ? -1 : syscall(SYS_write, fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    return fails("write", fd) ? -1 : syscall(SYS_pwrite64, fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    return fails("write", fd) ? -1 : syscall(SYS_pwrite64, fd, data, size, at);
}

ssize_t pread(int fd, void *data, size_t size, off_t at)
{
    return fails("read", fd) ? -1 : syscall(SYS_pread64, fd, data, size, at);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at)
{
    return fails("read", fd) ? -1 : syscall(SYS_pread64, fd, data, size, at);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) {
        long off = told("clock");
        now->tv_sec += off / 1000;
        now->tv_nsec += off % 1000 * 1000000;
        if (now->tv_nsec < 0 || now->tv_nsec >= 1000000000) {
            long carry = now->tv_nsec < 0 ? -1 : 1;
            now->tv_sec += carry;
            now->tv_nsec -= carry * 1000000000;
        }
    }
    return result;
}
