/* A Linux program that counts the same code with Debian's libpapi and with libepapi.a, by the same functions. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "epapi.h"
#include "known.h"
#include <dlfcn.h>

static volatile uint64_t buffer[8 * 4096];

struct papi {
    const char *name;
    int (*library_init)(int);
    int (*create_eventset)(int *);
    int (*add_event)(int, int);
    int (*add_named_event)(int, const char *);
    int (*remove_named_event)(int, const char *);
    int (*event_name_to_code)(const char *, int *);
    int (*query_event)(int);
    int (*num_events)(int);
    int (*state)(int, int *);
    int (*start)(int);
    int (*read)(int, long long *);
    int (*accum)(int, long long *);
    int (*reset)(int);
    int (*stop)(int, long long *);
    int (*cleanup_eventset)(int);
    int (*destroy_eventset)(int *);
};

static int load(struct papi *of)
{
    const char *names[] = {"libpapi.so.7.0", "libpapi.so.7.1", "libpapi.so.7.2", "libpapi.so.7.3"};
    void *library = 0;
    int minor = 0;

    while (minor < 4 && !(library = dlopen(names[minor], RTLD_NOW)))
        minor++;
    if (!library)
        return -1;
    of->name = "libpapi";
#define TAKE(function)                                                                                         \
    if (!(*(void **)&of->function = dlsym(library, "PAPI_" #function)))                                        \
        return -2;
    TAKE(library_init)
    TAKE(create_eventset)
    TAKE(add_event)
    TAKE(add_named_event)
    TAKE(remove_named_event)
    TAKE(event_name_to_code)
    TAKE(query_event)
    TAKE(num_events)
    TAKE(state)
    TAKE(start)
    TAKE(read)
    TAKE(accum)
    TAKE(reset)
    TAKE(stop)
    TAKE(cleanup_eventset)
    TAKE(destroy_eventset)
    /* A library accepts the version of its own header only. */
    return of->library_init(7 << 24 | minor << 16) > 0 ? 0 : -3;
}

static void work(void)
{
    INSTRUCTIONS(1000000);
    LOADS(buffer, 4096);
}

/* Counts an event over the same code twice, the second time by an accumulation; the first brings all into the caches. */
static long long count(const struct papi *of, const char *event)
{
    int set = PAPI_NULL, status;
    long long first, value = 0, rest;

    if ((status = of->create_eventset(&set)) < 0)
        return status;
    status = of->add_named_event(set, event);
    if (status >= 0 && (status = of->start(set)) >= 0) {
        work();
        of->read(set, &first);
        of->reset(set);
        work();
        of->accum(set, &value);
        of->stop(set, &rest);
    }
    of->cleanup_eventset(set);
    of->destroy_eventset(&set);
    return status < 0 ? status : value;
}

/* What a library answers to calls that are wrong, in an order that is wrong, or plain. */
static void ask(const struct papi *of)
{
    int set = PAPI_NULL, other = PAPI_NULL, code = 0, state = 0;
    long long values[4];

#define SAY(call) printf("%s: %s -> %d\n", of->name, #call, of->call)
    SAY(create_eventset(&set));
    SAY(create_eventset(&set));
    SAY(start(set));
    SAY(stop(set, values));
    SAY(start(9999));
    SAY(read(9999, values));
    SAY(add_event(set, 0));
    SAY(add_named_event(set, "NO_SUCH_EVENT"));
    SAY(add_named_event(set, "PAPI_FP_STAL"));
    SAY(add_event(set, (int)0x80000fff));
    SAY(query_event((int)0x80000fff));
    SAY(event_name_to_code("PAPI_TOT_CYC", &code));
    printf("%s: code %d\n", of->name, code);
    SAY(add_named_event(set, "PAPI_TOT_INS"));
    SAY(add_named_event(set, "PAPI_TOT_INS"));
    SAY(num_events(set));
    SAY(remove_named_event(set, "PAPI_TOT_CYC"));
    SAY(state(set, &state));
    printf("%s: state %d\n", of->name, state);
    SAY(start(set));
    SAY(start(set));
    SAY(state(set, &state));
    printf("%s: state %d\n", of->name, state);
    SAY(add_named_event(set, "PAPI_TOT_CYC"));
    SAY(cleanup_eventset(set));
    SAY(destroy_eventset(&set));
    SAY(create_eventset(&other));
    SAY(add_named_event(other, "PAPI_TOT_CYC"));
    SAY(start(other));
    SAY(stop(set, 0));
    SAY(stop(set, values));
    SAY(destroy_eventset(&set));
    SAY(cleanup_eventset(set));
    SAY(destroy_eventset(&set));
    SAY(num_events(9999));
    SAY(cleanup_eventset(other));
    SAY(destroy_eventset(&other));
}

int main(int count_of, char **events)
{
    static struct papi debian;
    static const struct papi ours = {"libepapi",
                                     ePAPI_library_init,
                                     ePAPI_create_eventset,
                                     ePAPI_add_event,
                                     ePAPI_add_named_event,
                                     ePAPI_remove_named_event,
                                     ePAPI_event_name_to_code,
                                     ePAPI_query_event,
                                     ePAPI_num_events,
                                     ePAPI_state,
                                     ePAPI_start,
                                     ePAPI_read,
                                     ePAPI_accum,
                                     ePAPI_reset,
                                     ePAPI_stop,
                                     ePAPI_cleanup_eventset,
                                     ePAPI_destroy_eventset};
    int loaded = load(&debian), version = ePAPI_library_init(PAPI_VER_CURRENT);

    if (loaded < 0 || version < 0) {
        printf("beside: libpapi %d, libepapi %d\n", loaded, version);
        return 1;
    }
    for (int at = 1; at < count_of; at++) {
        long long theirs = count(&debian, events[at]);
        printf("beside: event=%s libpapi=%lld libepapi=%lld\n", events[at], theirs, count(&ours, events[at]));
    }
    ask(&debian);
    ask(&ours);
    return 0;
}
