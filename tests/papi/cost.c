/* A CPU-bound Linux program: `cost ROUNDS`. With `papi` it counts itself; with `marked` what is counted is a region of interest. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "papi.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 48

static uint32_t one[SIDE][SIDE], other[SIDE][SIDE], product[SIDE][SIDE];

/* Products of matrices that the L1 data cache holds, and sums with branches. */
static uint32_t work(int rounds)
{
    uint32_t check = 0;

    for (int round = 0; round < rounds; round++) {
        for (int row = 0; row < SIDE; row++)
            for (int column = 0; column < SIDE; column++) {
                uint32_t sum = 0;
                for (int at = 0; at < SIDE; at++)
                    sum += one[row][at] * other[at][column];
                product[row][column] = sum;
                check = sum & 1 ? check * 31 + sum : check ^ sum;
            }
        one[round % SIDE][round / SIDE % SIDE] += check;
    }
    return check;
}

int main(int count, char **arguments)
{
    int events[2] = {PAPI_TOT_INS, PAPI_TOT_CYC}, status = 0, papi = 0, marked = 0;
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    long long counts[2] = {0, 0};

    for (int at = 2; at < count; at++) {
        papi |= !strcmp(arguments[at], "papi");
        marked |= !strcmp(arguments[at], "marked");
    }
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++) {
            one[row][column] = (uint32_t)(row * 7 + column);
            other[row][column] = (uint32_t)(row ^ column);
        }
    /* A count to begin with makes the library ready, as a program does once. */
    if (papi && (status = PAPI_start_counters(events, 2)) == PAPI_OK)
        status = PAPI_stop_counters(counts, 2);
    uint32_t check = work(1);
    if (marked)
        __asm__ volatile("hint #112\n\tisb" : : : "memory");
    if (papi)
        status |= PAPI_start_counters(events, 2);
    check ^= work(rounds);
    if (papi)
        status |= PAPI_stop_counters(counts, 2);
    if (marked)
        __asm__ volatile("hint #113\n\tisb" : : : "memory");
    printf("cost: check=%u status=%d instructions=%lld cycles=%lld\n", check, status, counts[0], counts[1]);
    return status != PAPI_OK;
}
