/* Joins of threads with every outcome that one program can bring about. Each is said on a line when it is over:
   `HOW thread-id = answer`, with HOW: `waits`, `at-once`, `gives-up` (a wait that ends without the thread), `refused` (no wait). */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int tid;

static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_nsec += ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

#define SAY(how, thread, call) \
	do { \
		errno = 77; \
		long said_ = (long)(call); \
		printf("%s %lu = %ld %d\n", how, (unsigned long)(thread), said_, errno); \
	} while (0)

/* Locks once, so that it is recorded, and ends after some milliseconds. */
static void *lasts(void *ms)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	usleep((long)ms * 1000);
	tid = (int)syscall(SYS_gettid);
	return ms;
}

static int lasts_c11(void *ms)
{
	return (int)(long)lasts(ms) + 1;
}

static pthread_t start(void *(*function)(void *), void *argument)
{
	pthread_t thread;
	tid = 0;
	if (pthread_create(&thread, NULL, function, argument) != 0)
		_exit(9);
	return thread;
}

/* Waits until the last thread is gone. */
static void gone(void)
{
	while (tid == 0 || syscall(SYS_tgkill, getpid(), (int)tid, 0) == 0)
		usleep(100);
}

static void *joins_forever(void *thread)
{
	pthread_join((pthread_t)thread, NULL);
	return NULL;
}

static void *joins_itself(void *unused)
{
	SAY("refused", pthread_self(), pthread_join(pthread_self(), NULL));
	return unused;
}

static void *never_locks(void *unused)
{
	usleep(5000);
	return unused;
}

int main(void)
{
	struct timespec soon;
	void *value = NULL;
	pthread_t thread = start(lasts, (void *)30);
	SAY("refused", thread, pthread_tryjoin_np(thread, &value));
	SAY("waits", thread, pthread_join(thread, &value));
	printf("value %ld\n", (long)value);

	/* Its place is used again. */
	thread = start(lasts, (void *)0);
	gone();
	SAY("at-once", thread, pthread_join(thread, &value));
	thread = start(lasts, (void *)0);
	gone();
	SAY("at-once", thread, pthread_tryjoin_np(thread, NULL));

	thread = start(lasts, (void *)200);
	soon = in_ms(CLOCK_REALTIME, 10);
	SAY("gives-up", thread, pthread_timedjoin_np(thread, &value, &soon));
	soon = in_ms(CLOCK_MONOTONIC, 10);
	SAY("gives-up", thread, pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &soon));
	SAY("waits", thread, pthread_timedjoin_np(thread, &value, NULL));

	thread = start(lasts, (void *)40);
	soon = in_ms(CLOCK_MONOTONIC, 5000);
	SAY("waits", thread, pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &soon));
	thread = start(never_locks, NULL);
	SAY("waits", thread, pthread_join(thread, &value));

	/* Refused by the C library: itself, and a detached thread. */
	thread = start(joins_itself, NULL);
	usleep(50000);
	pthread_join(thread, NULL);
	thread = start(lasts, (void *)100);
	pthread_detach(thread);
	SAY("gives-up", thread, pthread_join(thread, &value));
	gone();

	/* A joining thread that is cancelled, and another one that joins after it. */
	thread = start(lasts, (void *)200);
	pthread_t other = start(joins_forever, (void *)thread);
	usleep(50000);
	pthread_cancel(other);
	pthread_join(other, &value);
	printf("cancelled %d\n", value == PTHREAD_CANCELED);
	SAY("waits", thread, pthread_join(thread, &value));

	thrd_t simple;
	int number = 0;
	thrd_create(&simple, lasts_c11, (void *)20);
	SAY("waits", simple, thrd_join(simple, &number));
	printf("number %d\n", number);
	fflush(stdout);

	/* A child has threads of its own, at the addresses of its parent's. */
	pid_t child = fork();
	if (child == 0) {
		thread = start(lasts, (void *)20);
		SAY("waits", thread, pthread_join(thread, &value));
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	return 0;
}
