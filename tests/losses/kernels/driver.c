/* Calls the kernel on random shapes with buffers of exactly the size they need, for a sanitizer or valgrind to watch,
   and compares each loss with a plain sum in double. Prints how many calls it made. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "cce.c"

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static float number(void) { return (float)(next() % 2001) / 250.0f - 4.0f; }

static float *numbers(int64_t count) {
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = number();
    return x;
}

static int backwards(int64_t begin, int64_t end, int64_t grain, void (*job)(int64_t, int64_t, void *), void *context) {
    for (int64_t stop = end; stop > begin; stop -= grain) job(stop - grain > begin ? stop - grain : begin, stop, context);
    return 0;
}

/* H + c C of one row, as the equations have it. */
static double plain(const void *z, int half, int64_t k, int64_t g, double c, const float *offset) {
    double top = -INFINITY, top_h = -INFINITY, total = 0, total_h = 0, spread = 0;
    for (int64_t j = 0; j < k; j++) {
        if (j != g) top = fmax(top, element(z, j, half));
        top_h = fmax(top_h, element(z, j, half) + (offset ? offset[j] : 0.0));
    }
    for (int64_t j = 0; j < k; j++) {
        const double x = element(z, j, half), o = offset ? offset[j] : 0.0;
        total_h += exp(x + o - top_h);
        if (j == g) continue;
        total += exp(x - top);
        spread += exp(x - top) * (top - x);
    }
    const double h = top_h + log(total_h) - element(z, g, half) - (offset ? offset[g] : 0.0);
    return h + c * (log(total) + spread / total);
}

static int once(int level, int calls_wrong_target) {
    const int64_t n = (int64_t)(next() % 30), k = 2 + (int64_t)(next() % (next() % 4 ? 60 : 3000));
    const int64_t stride = k + (int64_t)(next() % 3);
    const int half = (int)(next() % 2), shifted = (int)(next() % 2), weighted = (int)(next() % 2);
    const int with_gradient = (int)(next() % 2), in_place = with_gradient && stride == k && next() % 2;
    const size_t size = half ? 2 : 4, needed = n ? (size_t)((n - 1) * stride + k) : 0;
    char *logits = malloc(needed * size + 1);
    int64_t *target = malloc((size_t)n * sizeof *target + 1);
    for (size_t i = 0; i < needed; i++) set_element(logits, (int64_t)i, number(), half);
    for (int64_t i = 0; i < n; i++) target[i] = next() % 8 ? (int64_t)(next() % (uint64_t)k) : -100;
    if (calls_wrong_target && n) target[next() % (uint64_t)n] = next() % 2 ? k : -1 - (int64_t)(next() % 50);
    float *offset = shifted ? numbers(k) : NULL, *weight = weighted ? numbers(k) : NULL;
    float *loss = malloc((size_t)n * sizeof *loss + 1);
    char *gradient = !with_gradient ? NULL : in_place ? logits : malloc((size_t)(n * k) * size + 1);
    const double c = -0.3;
    double *wanted = malloc((size_t)n * sizeof *wanted + 1);
    for (int64_t i = 0; i < n && !calls_wrong_target; i++)
        wanted[i] = target[i] == -100 ? 0
                                      : (weight ? weight[target[i]] : 1) * plain(logits + (size_t)(i * stride) * size, half,
                                                                                 k, target[i], c, offset);
    const request asked = {.logits = logits, .logits_bytes = (int64_t)(needed * size), .half = half, .rows = n,
                           .classes = k, .stride = stride, .target = target, .target_bytes = n * 8, .weight = weight,
                           .offset = offset, .h = 1, .c = c, .ignore_index = -100, .reduction = NONE, .loss = loss,
                           .gradient = gradient, .split = next() % 2 ? backwards : NULL, .level = level};
    int wrong = 0;
    if (n) { /* memory that ends before the last element is not read */
        request cut = asked;
        *(next() % 2 ? &cut.logits_bytes : &cut.target_bytes) -= 1 + (int64_t)(next() % size);
        wrong = evenhand_cce(&cut) != NOT_STORED;
    }
    const int status = evenhand_cce(&asked);
    wrong |= status != (calls_wrong_target && n ? NO_CLASS : DONE);
    for (int64_t i = 0; i < n && status == DONE; i++) wrong |= fabs(loss[i] - wanted[i]) > 1e-5 * (1 + fabs(wanted[i]));
    if (gradient != logits) free(gradient);
    free(logits), free(target), free(offset), free(weight), free(loss), free(wanted);
    return wrong;
}

enum { RACE_ROWS = 4000, RACE_CLASSES = 10 };
static int64_t contested[RACE_ROWS];
static int finished;

static void set_targets(int64_t value) {
    for (int i = 0; i < RACE_ROWS; i++) __atomic_store_n(&contested[i], value, __ATOMIC_RELAXED);
}

/* Changes the targets after they were checked, before they are used. */
static int meddle(int64_t begin, int64_t end, int64_t grain, void (*job)(int64_t, int64_t, void *), void *context) {
    set_targets(next() % 2 ? INT64_MIN : (int64_t)1 << (next() % 62));
    return backwards(begin, end, grain, job, context);
}

/* Changes the targets at any time. */
static void *disturb(void *unused) {
    while (!__atomic_load_n(&finished, __ATOMIC_RELAXED)) set_targets(RACE_CLASSES), set_targets(3);
    return unused;
}

static int race(int level, int calls) {
    pthread_t other;
    float *logits = numbers(RACE_ROWS * RACE_CLASSES), *weight = numbers(RACE_CLASSES);
    float *gradient = malloc(RACE_ROWS * RACE_CLASSES * sizeof *gradient), loss, expected = 0;
    request asked = {.logits = logits, .logits_bytes = RACE_ROWS * RACE_CLASSES * sizeof *logits, .rows = RACE_ROWS,
                     .classes = RACE_CLASSES, .stride = RACE_CLASSES, .target = contested,
                     .target_bytes = sizeof contested, .weight = weight, .h = 1, .c = -0.3, .ignore_index = -100, .reduction = SUM,
                     .loss = &loss, .gradient = gradient, .level = level};
    int wrong = 0;
    for (int i = 0; i < 10; i++, expected = loss) {
        asked.split = i ? meddle : NULL;
        set_targets(3);
        wrong |= evenhand_cce(&asked) != DONE || (i && loss != expected);
    }
    asked.split = NULL;
    finished = 0;
    if (pthread_create(&other, NULL, disturb, NULL)) return 1;
    for (int i = 0; i < calls; i++) {
        const int status = evenhand_cce(&asked);
        wrong |= status != NO_CLASS && (status != DONE || loss != expected);
    }
    __atomic_store_n(&finished, 1, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
    free(logits), free(weight), free(gradient);
    return wrong;
}

int main(int count, char **arguments) {
    const int calls = count > 1 ? atoi(arguments[1]) : 1000, best = evenhand_level();
    for (int i = 0; i < calls; i++)
        for (int level = 1; level <= best; level++)
            if (once(level, i % 10 == 9)) {
                printf("call %d at level %d is wrong\n", i, level);
                return 1;
            }
    for (int level = 1; level <= best; level++)
        if (race(level, calls)) {
            printf("a race at level %d is wrong\n", level);
            return 1;
        }
    printf("%d calls at each of %d levels\n", calls, best);
    return best ? 0 : 2;
}
