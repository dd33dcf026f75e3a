/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A ring of messages in a channel's memory, between one sender and one receiver: the same ring as
 * in the Rust crate cloison-channel, for guests in C (C11, GCC or Clang).
 *
 * Neither side trusts the other. Each keeps its own position to itself and checks the other's:
 * whatever a peer stores, a call ends after a bounded time with a message, nothing, or an error.
 * A message is copied once, word by word, before it is looked at. Each position carries the
 * session: the lives of the two VMs, as Cloison numbers them (CLOISON_PEER, CLOISON_DOORBELL_TAKE).
 * A side that starts again, or learns that the other one has, begins a new session. Messages of
 * another session are never received. */
#ifndef CLOISON_CHANNEL_H
#define CLOISON_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

/* Words in a message: 64 bytes, a cache line. */
#define CLOISON_MESSAGE_WORDS 8

/* Results besides 0. */
#define CLOISON_MESSAGE_RECEIVED 1 /* there was a message */
#define CLOISON_RING_FULL (-1)     /* try again when the receiver has received */
#define CLOISON_RING_LIES (-2)     /* the peer has stored a position that cannot be */

/* Where a ring is. */
struct cloison_ring {
    uint64_t *sent;     /* how many messages were sent: written by the sender */
    uint64_t *received; /* how many were received: written by the receiver */
    uint64_t *slots;    /* the messages */
    uint32_t capacity;  /* the number of messages that it holds: a power of two */
};

/* One side of a ring. */
struct cloison_ring_end {
    struct cloison_ring ring;
    uint64_t session;  /* in the upper half of a stored position */
    uint32_t sent;     /* messages of this session, modulo 2^32: sent by the sender */
    uint32_t received; /* and received: at the sender, as far as it knows */
};

/* Returns the session of two lives, of which 16 bits each count. */
static inline uint64_t cloison_ring_session(uint64_t sender, uint64_t receiver)
{
    return (sender & 0xffff) << 48 | (receiver & 0xffff) << 32;
}

/* Places a ring of which the receiver may only read `sent` and `slots`, and the sender only
 * `received`: in two channels, each written by one VM. Returns 0 if not one message fits into
 * `words` words of slots, and 1 otherwise. */
static inline int cloison_ring_in_parts(struct cloison_ring *ring, uint64_t *sent,
                                        uint64_t *received, uint64_t *slots, size_t words)
{
    size_t messages = words / CLOISON_MESSAGE_WORDS;
    uint32_t capacity = 1;
    if (messages == 0)
        return 0;
    /* Positions have 32 bits: the ring must divide their range. */
    while (capacity < UINT32_C(1) << 31 && messages / 2 >= capacity)
        capacity *= 2;
    *ring = (struct cloison_ring){sent, received, slots, capacity};
    return 1;
}

/* Places a ring in memory that both sides may write: a line for each position, then the messages,
 * as many as fit and are a power of two. Returns 0 if not even one fits, and 1 otherwise. */
static inline int cloison_ring_in(struct cloison_ring *ring, uint64_t *memory, size_t words)
{
    const size_t positions = 2 * CLOISON_MESSAGE_WORDS;
    if (words < positions)
        return 0;
    return cloison_ring_in_parts(ring, memory, memory + CLOISON_MESSAGE_WORDS, memory + positions,
                                 words - positions);
}

static inline uint64_t *cloison_ring_slot(const struct cloison_ring *ring, uint32_t position)
{
    return ring->slots + (size_t)(position & (ring->capacity - 1)) * CLOISON_MESSAGE_WORDS;
}

/* The sender begins a session. */
static inline void cloison_sender_begin(struct cloison_ring_end *end, struct cloison_ring ring,
                                        uint64_t session)
{
    *end = (struct cloison_ring_end){ring, session, 0, 0};
    __atomic_store_n(ring.sent, session, __ATOMIC_RELEASE);
}

/* The receiver begins a session. */
static inline void cloison_receiver_begin(struct cloison_ring_end *end, struct cloison_ring ring,
                                          uint64_t session)
{
    *end = (struct cloison_ring_end){ring, session, 0, 0};
    __atomic_store_n(ring.received, session, __ATOMIC_RELEASE);
}

/* Sends a message. Ring the receiver's doorbell afterwards. Returns 0, CLOISON_RING_FULL or
 * CLOISON_RING_LIES. */
static inline int cloison_send(struct cloison_ring_end *end,
                               const uint64_t message[CLOISON_MESSAGE_WORDS])
{
    uint32_t underway = end->sent - end->received;
    /* Acquire: the receiver has copied what it says to have received. A word of another session
     * says nothing of this one. */
    uint64_t word = __atomic_load_n(end->ring.received, __ATOMIC_ACQUIRE);
    uint64_t *slot;
    int i;
    if (word >> 32 == end->session >> 32) {
        if ((uint32_t)word - end->received > underway)
            return CLOISON_RING_LIES;
        end->received = (uint32_t)word;
    }
    if (end->sent - end->received >= end->ring.capacity)
        return CLOISON_RING_FULL;
    slot = cloison_ring_slot(&end->ring, end->sent);
    for (i = 0; i < CLOISON_MESSAGE_WORDS; i++)
        __atomic_store_n(slot + i, message[i], __ATOMIC_RELAXED);
    end->sent++;
    __atomic_store_n(end->ring.sent, end->session | end->sent, __ATOMIC_RELEASE);
    return 0;
}

/* Receives the next message. Returns CLOISON_MESSAGE_RECEIVED, 0 if there is none, or
 * CLOISON_RING_LIES. */
static inline int cloison_receive(struct cloison_ring_end *end,
                                  uint64_t message[CLOISON_MESSAGE_WORDS])
{
    uint64_t word = __atomic_load_n(end->ring.sent, __ATOMIC_ACQUIRE);
    uint64_t *slot;
    int i;
    /* A sender of another session has sent nothing in this one. */
    if (word >> 32 != end->session >> 32 || (uint32_t)word == end->received)
        return 0;
    if ((uint32_t)word - end->received > end->ring.capacity)
        return CLOISON_RING_LIES;
    slot = cloison_ring_slot(&end->ring, end->received);
    for (i = 0; i < CLOISON_MESSAGE_WORDS; i++)
        message[i] = __atomic_load_n(slot + i, __ATOMIC_RELAXED);
    end->received++;
    /* Release: the slot is the sender's again only once it was copied. */
    __atomic_store_n(end->ring.received, end->session | end->received, __ATOMIC_RELEASE);
    return CLOISON_MESSAGE_RECEIVED;
}

#endif
