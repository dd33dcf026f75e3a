/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The C ends of a ring, for tests/c.rs. With an argument: two threads pass that many messages.
 * Without: executes steps. Each is read as an operation, its argument, a message and the memory;
 * the answer is a result, a message and the memory. All are words of this machine. */
#include "cloison_channel.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 2 * CLOISON_MESSAGE_WORDS + 4 * CLOISON_MESSAGE_WORDS };

struct step {
    uint64_t number; /* the operation, or the result */
    uint64_t session;
    uint64_t message[CLOISON_MESSAGE_WORDS];
    uint64_t memory[WORDS];
};

static struct cloison_ring_end sender, receiver;

static void *send_all(void *count)
{
    uint64_t number, message[CLOISON_MESSAGE_WORDS];
    int i;
    for (number = 0; number < *(uint64_t *)count; number++) {
        for (i = 0; i < CLOISON_MESSAGE_WORDS; i++)
            message[i] = number << 8 | (unsigned)i;
        while (cloison_send(&sender, message) == CLOISON_RING_FULL)
            ;
    }
    return NULL;
}

/* Passes messages between two threads. Returns whether all came in order. */
static int pass(uint64_t count)
{
    static uint64_t memory[WORDS];
    uint64_t number = 0, message[CLOISON_MESSAGE_WORDS];
    struct cloison_ring ring;
    pthread_t thread;
    int i;
    if (!cloison_ring_in(&ring, memory, WORDS))
        return 0;
    cloison_sender_begin(&sender, ring, cloison_ring_session(1, 3));
    cloison_receiver_begin(&receiver, ring, cloison_ring_session(1, 3));
    if (pthread_create(&thread, NULL, send_all, &count) != 0)
        return 0;
    while (number < count) {
        int result = cloison_receive(&receiver, message);
        if (result == 0)
            continue;
        if (result != CLOISON_MESSAGE_RECEIVED)
            return 0;
        for (i = 0; i < CLOISON_MESSAGE_WORDS; i++)
            if (message[i] != (number << 8 | (unsigned)i))
                return 0;
        number++;
    }
    return pthread_join(thread, NULL) == 0;
}

int main(int argc, char **argv)
{
    static struct step step;
    struct cloison_ring ring;
    if (argc > 1)
        return pass(strtoull(argv[1], NULL, 10)) ? 0 : 1;
    if (!cloison_ring_in(&ring, step.memory, WORDS) || ring.capacity != 4)
        return 1;
    while (fread(&step, sizeof step, 1, stdin) == 1) {
        int result = 0;
        switch (step.number) {
        case 0:
            cloison_sender_begin(&sender, ring, step.session);
            break;
        case 1:
            cloison_receiver_begin(&receiver, ring, step.session);
            break;
        case 2:
            result = cloison_send(&sender, step.message);
            break;
        default:
            memset(step.message, 0, sizeof step.message);
            result = cloison_receive(&receiver, step.message);
        }
        step.number = (uint64_t)(int64_t)result;
        if (fwrite(&step, sizeof step, 1, stdout) != 1 || fflush(stdout) != 0)
            return 1;
    }
    return 0;
}
