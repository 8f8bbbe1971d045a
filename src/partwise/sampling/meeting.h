/* Threads that wait for each other, several times a token. */

#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* How often a thread looks before it sleeps: tens of microseconds, which is longer than the others
   take, unless another process has their core. That process also wants the core of whoever waits. */
enum { LOOKS = 1000 };

typedef struct {
    int64_t threads; /* that meet; known once the doors are open */
    _Atomic int64_t arrived, phase;
    pthread_mutex_t lock;
    pthread_cond_t passed;
} Meeting;

static void prepare(Meeting *meeting) {
    pthread_mutex_init(&meeting->lock, NULL);
    pthread_cond_init(&meeting->passed, NULL);
}

static void dismiss(Meeting *meeting) {
    pthread_cond_destroy(&meeting->passed);
    pthread_mutex_destroy(&meeting->lock);
}

static inline void look_away(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Until somebody has let pass those who wait in this phase. */
static void await(Meeting *meeting, int64_t phase) {
    for (int looks = 0; looks < LOOKS; looks++) {
        if (atomic_load_explicit(&meeting->phase, memory_order_acquire) != phase) return;
        look_away();
    }
    pthread_mutex_lock(&meeting->lock);
    while (atomic_load(&meeting->phase) == phase)
        pthread_cond_wait(&meeting->passed, &meeting->lock);
    pthread_mutex_unlock(&meeting->lock);
}

static void let_pass(Meeting *meeting) {
    pthread_mutex_lock(&meeting->lock);
    atomic_fetch_add(&meeting->phase, 1);
    pthread_cond_broadcast(&meeting->passed);
    pthread_mutex_unlock(&meeting->lock);
}

/* Until all are here. */
static void meet(Meeting *meeting) {
    if (meeting->threads == 1) return;
    int64_t phase = atomic_load(&meeting->phase);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 < meeting->threads) {
        await(meeting, phase);
        return;
    }
    atomic_store(&meeting->arrived, 0);
    let_pass(meeting);
}
