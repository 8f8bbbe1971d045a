/* Threads that wait for each other, several times a token. */

#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds that a thread waits awake before it sleeps: longer than the others take, unless another
   process has their core. That process also wants the core of whoever waits. */
#ifndef AWAKE
#define AWAKE 100000
#endif

/* Looks between two questions what time it is. */
enum { LOOKS = 64 };

typedef struct {
    int64_t threads;         /* that meet; known once `let_pass` has let them begin */
    _Atomic int64_t arrived; /* of them at this meeting */
    _Atomic int64_t phase;   /* how often they were let pass */
    int64_t asleep;          /* threads; under the lock */
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

static inline int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Until somebody has let pass those who wait in this phase. */
static void await(Meeting *meeting, int64_t phase) {
    int64_t end = 0;
    for (int64_t looks = 1;; looks++) {
        if (atomic_load_explicit(&meeting->phase, memory_order_acquire) != phase) return;
        look_away();
        if (looks % LOOKS) continue;
        int64_t now = nanoseconds();
        if (!end) end = now + AWAKE;
        if (now >= end) break;
    }
    pthread_mutex_lock(&meeting->lock);
    meeting->asleep++;
    while (atomic_load(&meeting->phase) == phase)
        pthread_cond_wait(&meeting->passed, &meeting->lock);
    meeting->asleep--;
    pthread_mutex_unlock(&meeting->lock);
}

static void let_pass(Meeting *meeting) {
    pthread_mutex_lock(&meeting->lock);
    atomic_fetch_add(&meeting->phase, 1);
    if (meeting->asleep) pthread_cond_broadcast(&meeting->passed);
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
