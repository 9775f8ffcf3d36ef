/* A library that is opened while the program runs. */
#include <pthread.h>

void lock_and_unlock(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	pthread_mutex_unlock(mutex);
}
