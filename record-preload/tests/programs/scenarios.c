/* Situations in which a recorder may stumble, one for each first argument. Each prints what it did: `NAME NUMBER` lines. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "asleep.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
extern char **environ;

static void say(const char *name, unsigned long number)
{
	printf("%s %lu\n", name, number);
	fflush(stdout);
}

static __attribute__((noinline)) void pair(pthread_mutex_t *lock, long times)
{
	for (long i = 0; i < times; i++) {
		pthread_mutex_lock(lock);
		pthread_mutex_unlock(lock);
	}
	__asm__ volatile("");
}

static void *pairs(void *times)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	pair(&own, (long)times);
	return NULL;
}

static void *in_thread(void *(*function)(void *), void *argument)
{
	pthread_t thread;
	void *answer = NULL;
	if (pthread_create(&thread, NULL, function, argument) == 0)
		pthread_join(thread, &answer);
	return answer;
}

/* A child that goes on with the program, locks, and has a child of its own. */
static int forks(void)
{
	pair(&mutex, 10);
	pid_t child = fork();
	if (child == 0) {
		pair(&mutex, 20);
		in_thread(pairs, (void *)5);
		pid_t grandchild = fork();
		if (grandchild == 0) {
			pair(&mutex, 30);
			_exit(0);
		}
		waitpid(grandchild, NULL, 0);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	pair(&mutex, 40);
	say("child", child);
	return 0;
}

/* The same by a system call, which runs no handlers of fork. */
static int raw_fork(void)
{
	pair(&mutex, 10);
	long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		pair(&mutex, 20);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	pair(&mutex, 40);
	return 0;
}

/* Many threads fork at once, each child locks. */
static void *forking(void *unused)
{
	for (int i = 0; i < 20; i++) {
		pair(&other, 3);
		pid_t child = fork();
		if (child == 0) {
			pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
			pair(&own, 7);
			_exit(0);
		}
		int status;
		waitpid(child, &status, 0);
		if (status)
			abort();
	}
	return unused;
}

static int fork_in_threads(void)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, forking, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static int executes(char *self)
{
	pair(&mutex, 10);
	char *words[] = { self, "some", "20", NULL };
	pid_t child;
	posix_spawn(&child, self, NULL, NULL, words, environ);
	waitpid(child, NULL, 0);
	child = vfork();
	if (child == 0) {
		execv(self, words);
		_exit(1);
	}
	waitpid(child, NULL, 0);
	pair(&mutex, 30);
	execv(self, words);
	return 1;
}

/* A handler that locks, at any time. */
static volatile long handled;
static pthread_mutex_t of_handler = PTHREAD_MUTEX_INITIALIZER;
static void lock_in_handler(int signal)
{
	int error = errno;
	if (pthread_mutex_trylock(&of_handler) == 0)
		pthread_mutex_unlock(&of_handler);
	handled++;
	errno = error;
	(void)signal;
}

static void every_us(long us, void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	struct itimerval timer = { { 0, us }, { 0, us } };
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static int signals(void)
{
	every_us(50, lock_in_handler, SA_RESTART);
	long times = 0;
	/* All that is recorded fits into the pool, however late the timer is. */
	while (handled < 3000 && times < 10000000) {
		pair(&mutex, 100);
		times += 100;
	}
	every_us(0, SIG_IGN, 0);
	say("pairs", times);
	say("handled", handled);
	return 0;
}

/* A handler that jumps out of whatever it interrupted. */
static sigjmp_buf out;
static void jump(int signal)
{
	(void)signal;
	siglongjmp(out, 1);
}

static int jumps(void)
{
	volatile int times = 0;
	volatile long pairs = 0;
	struct sigaction action = { .sa_handler = jump };
	sigaction(SIGALRM, &action, NULL);
	pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	if (sigsetjmp(out, 1)) {
		if (++times > 2000) {
			every_us(0, SIG_IGN, 0);
			pair(&other, 100);
			say("jumped", times);
			say("pairs", pairs + 100);
			return 0;
		}
	}
	struct itimerval timer = { { 0, 0 }, { 0, 40 + times % 13 } };
	setitimer(ITIMER_REAL, &timer, NULL);
	/* All that is recorded fits into the pool, however late the timer is. */
	for (int i = 0; i < 3000; i++) {
		pthread_mutex_lock(&recursive);
		pthread_mutex_unlock(&recursive);
		pairs++;
	}
	for (;;)
		pause();
}

/* Threads that are cancelled before their waits or in them. */
static atomic_int waiter;

static void unlock(void *lock)
{
	pthread_mutex_unlock(lock);
}

static void *waits_for_condition(void *unused)
{
	waiter = (int)syscall(SYS_gettid);
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(unlock, &mutex);
	for (;;)
		pthread_cond_wait(&condition, &mutex);
	pthread_cleanup_pop(1);
	return unused;
}

static void *waits_for_semaphore(void *unused)
{
	waiter = (int)syscall(SYS_gettid);
	sem_wait(&semaphore);
	return unused;
}

static void *sees_cancellation_first(void *unused)
{
	sem_t full;
	sem_init(&full, 0, 1);
	pthread_cancel(pthread_self());
	sem_wait(&full);
	return unused;
}

static int cancels(void)
{
	void *(*functions[])(void *) = { waits_for_condition, waits_for_semaphore };
	sem_init(&semaphore, 0, 0);
	for (int round = 0; round < 50; round++)
		for (int i = 0; i < 2; i++) {
			pthread_t thread;
			void *answer;
			waiter = 0;
			pthread_create(&thread, NULL, functions[i], NULL);
			usleep(round * 20);
			while (round % 2 && (waiter == 0 || !is_asleep(waiter)))
				usleep(100);
			pthread_cancel(thread);
			pthread_join(thread, &answer);
			if (answer != PTHREAD_CANCELED)
				return 1;
		}
	if (in_thread(sees_cancellation_first, NULL) != PTHREAD_CANCELED)
		return 2;
	/* The mutex was given back by every one. */
	return pthread_mutex_trylock(&mutex);
}

/* Destructors of keys and of C++'s kind that lock. */
static pthread_key_t early, late;
static void lock_at_end(void *round)
{
	pair(&other, 1);
	if ((long)round < 3)
		pthread_setspecific(early, (void *)((long)round + 1));
}

static void *ends_late(void *unused)
{
	pthread_setspecific(early, (void *)1);
	pthread_setspecific(late, (void *)3);
	pair(&mutex, 1);
	return unused;
}

static int destructors(void)
{
	pthread_key_create(&early, lock_at_end);
	pthread_key_create(&late, lock_at_end);
	for (int i = 0; i < 100; i++)
		in_thread(ends_late, NULL);
	return 0;
}

/* Many threads, one after the other: slots are used again. */
static int one_by_one(long threads)
{
	for (long i = 0; i < threads; i++)
		in_thread(pairs, (void *)3);
	return 0;
}

static pthread_barrier_t all_there;
static void *meets(void *times)
{
	pairs(times);
	pthread_barrier_wait(&all_there);
	return NULL;
}

/* Many threads at once. */
static int at_once(long threads)
{
	pthread_t *handles = calloc(threads, sizeof *handles);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	pthread_barrier_init(&all_there, NULL, threads);
	for (long i = 0; i < threads; i++)
		if (pthread_create(&handles[i], &attributes, meets, (void *)3))
			return 1;
	for (long i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	return 0;
}

/* Locks on another stack than the thread's. */
static char *alternative;
static int on_another_stack(void)
{
	size_t bytes = 256 << 10;
	alternative = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t stack = { .ss_sp = alternative, .ss_size = bytes };
	sigaltstack(&stack, NULL);
	struct sigaction action = { .sa_handler = lock_in_handler, .sa_flags = SA_ONSTACK };
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 1000; i++) {
		raise(SIGUSR1);
		pair(&mutex, 1);
	}
	return 0;
}

/* Calls with garbage where a frame pointer would be. */
static int garbage_frames(void)
{
	unsigned long seed = 1, here = (unsigned long)&seed;
	for (int i = 0; i < 200000; i++) {
		seed = seed * 6364136223846793005ul + 1442695040888963407ul;
		unsigned long value = seed;
		switch (i % 4) {
		case 0: value = here + seed % 65536 * 8; break;
		case 1: value = here - seed % 65536 * 8; break;
		case 2: value = here + seed % 200; break;
		}
		void *lock = &mutex, *function = i % 2 ? (void *)pthread_mutex_unlock : (void *)pthread_mutex_lock;
		__asm__ volatile("push %%rbp\n\tpush %%rbp\n\tsub $128, %%rsp\n\tmov %2, %%rbp\n\tcall *%1\n\t"
				 "add $128, %%rsp\n\tpop %%rbp\n\tpop %%rbp"
				 : "+D"(lock), "+S"(function), "+d"(value)
				 :
				 : "rax", "rcx", "r8", "r9", "r10", "r11", "memory", "cc");
	}
	return 0;
}

static int opens(const char *library)
{
	for (int i = 0; i < 20; i++) {
		void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
		if (!handle)
			return puts(dlerror()), 1;
		void (*function)(pthread_mutex_t *) = (void (*)(pthread_mutex_t *))dlsym(handle, "lock_and_unlock");
		function(&mutex);
		dlclose(handle);
	}
	return 0;
}

static void *named(void *unused)
{
	pair(&mutex, 1);
	pthread_setname_np(pthread_self(), "renamed-once");
	pair(&mutex, 1);
	prctl(PR_SET_NAME, "renamed-twice");
	pair(&mutex, 1);
	return unused;
}

/* Errors must be those of the call, and no others. */
static int keeps_errno(void)
{
	sem_init(&semaphore, 0, 1);
	errno = 99;
	pair(&mutex, 100);
	in_thread(pairs, (void *)1);
	sem_wait(&semaphore);
	if (errno != 99)
		return 1;
	if (sem_trywait(&semaphore) != -1 || errno != EAGAIN)
		return 2;
	return 0;
}

static int forever(void)
{
	pthread_t thread;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, pairs, (void *)(1l << 40));
	pairs((void *)(1l << 40));
	return 0;
}

/* Locks in a constructor, before main, and in one of a library that is initialised before. */
static __attribute__((constructor)) void early_lock(void)
{
	pair(&other, 2);
}

int main(int count, char **words)
{
	const char *scene = count > 1 ? words[1] : "";
	long number = count > 2 ? atol(words[2]) : 0;
#define SCENE(name, call) if (strcmp(scene, name) == 0) return call
	SCENE("forks", forks());
	SCENE("raw-fork", raw_fork());
	SCENE("fork-in-threads", fork_in_threads());
	SCENE("executes", executes(words[0]));
	SCENE("signals", signals());
	SCENE("jumps", jumps());
	SCENE("cancels", cancels());
	SCENE("destructors", destructors());
	SCENE("one-by-one", one_by_one(number));
	SCENE("at-once", at_once(number));
	SCENE("another-stack", on_another_stack());
	SCENE("garbage-frames", garbage_frames());
	SCENE("opens", opens(words[2]));
	SCENE("errno", keeps_errno());
	SCENE("forever", forever());
	SCENE("some", (pair(&mutex, number), 0));
	SCENE("named", (in_thread(named, NULL), 0));
	return 3;
}
