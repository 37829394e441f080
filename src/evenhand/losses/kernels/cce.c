/* Cross entropy H and complement entropy C of rows of logits: h H + c C, reduced, and its gradient, in one pass.

   Plain C behind one function with plain pointers: it knows neither Python nor torch. Threads, if wanted, are lent by
   the caller as a function that splits a range. Built for x86-64 by GCC or Clang; elsewhere `evenhand_level` is 0. */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef int (*parallel_for)(int64_t begin, int64_t end, int64_t grain, void (*work)(int64_t, int64_t, void *), void *);

/* Counts the changes of `evenhand_cce` that a caller must know of; native.py names the one it calls. */
EXPORT int evenhand_interface(void) { return 3; }

enum { DONE = 0, NO_CLASS = 1, NO_MEMORY = 2, NOT_SUPPORTED = 3, NOT_STORED = 4 };
enum { NONE = 0, MEAN = 1, SUM = 2 };

/* What is asked for, in one piece: a caller in Python takes longer to hand over 22 arguments than small losses take.
   native.py writes the same fields. */
typedef struct {
    const void *logits; /* (rows, classes), float32 or, if half, bfloat16, whose rows are `stride` elements apart */
    int64_t logits_bytes, logits_start; /* of the memory they are in, and the first element in it */
    int64_t half, rows, classes, stride;
    const int64_t *target;
    int64_t target_bytes, target_start;
    const float *weight, *offset, *margin, *shares; /* of each class, or NULL: H takes the margin off the logit of the
                                                       correct class, and shares stand for c */
    double h, c;
    int64_t ignore_index, reduction;
    float *loss;    /* (rows) or, reduced, (1) */
    void *gradient; /* (rows, classes) without gaps, which may be the logits themselves, or NULL */
    parallel_for split; /* or NULL */
    int64_t level;
} request;

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>

#define FAR (-1e4f)     /* a distance whose exponential is 0, and whose product with that 0 is no NaN */
#define LANES 16        /* the most elements a vector holds */
#define BLOCK 512       /* elements added up in float before double */
#define GROUP 16        /* rows worked on at once, if they fit in the innermost cache */
#define CACHED 4096     /* elements that do */
#define GRAIN 32768     /* elements worth a thread of their own, as in torch */
#define SPAN 50.0       /* the widest offset for which exp(z) exp(o) can stand for exp(z + o) */

/* A row's class, or -1 where it counts for nothing, and its loss. The class is a copy of the target, which another
   thread may change at any time: each value is read once, then checked, and only the copy is used. */
typedef struct {
    int64_t target;
    double loss;
} row_state;

typedef struct {
    const char *logits;
    char *gradient; /* (rows, classes), of the logits' type, or NULL */
    const float *weight, *offset, *margin, *shares; /* of each class, or NULL */
    float *factors; /* exp(offset - top) and LANES zeros, or NULL */
    row_state *rows;
    double h, c, top, divisor;
    int64_t classes, stride;
    int half, level, group, failed;
} job;

typedef struct {
    float largest;
    double total, spread, weighted; /* sum e, sum e v, sum e w */
} row_sums;

typedef struct {
    double loss; /* with the weight of its class */
    float base, slope, pull, own; /* dloss/dz_k = e (base + slope v_k + pull w_k), and own for the correct class */
} row_terms;

static inline float element(const void *row, int64_t i, int half) {
    if (!half) return ((const float *)row)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)row)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void set_element(void *row, int64_t i, float x, int half) {
    if (!half) {
        ((float *)row)[i] = x;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    ((uint16_t *)row)[i] = isnan(x) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline const void *logits_at(const job *a, int64_t row) {
    return a->logits + row * a->stride * (a->half ? 2 : 4);
}

static inline void *gradient_at(const job *a, int64_t row) {
    return a->gradient ? a->gradient + row * a->classes * (a->half ? 2 : 4) : NULL;
}

/* What a row comes to, in double. */
static inline row_terms finish_row(const job *a, float own, int64_t g, row_sums s) {
    const double factor = a->weight ? a->weight[g] : 1.0, scale = factor / a->divisor;
    double c = a->shares ? a->shares[g] : a->c;
    if (s.largest <= -FLT_MAX) { /* every wrong class is masked: C = 0, and H is NaN where the correct one is too */
        c = 0;
        if (s.total == 0) s = (row_sums){-INFINITY, 1, 0, 1};
    }
    const double log_total = log(s.total), mean_v = s.spread / s.total, each = scale / s.total;
    const double undefined = own < INFINITY ? 0 : NAN; /* as in cross entropy, in C too, which ignores this logit */
    double risk = isnan(mean_v) ? mean_v : undefined, h = undefined;
    if (a->h != 0) {
        double d = (double)s.largest - own + undefined; /* first: with huge logits nothing else would be left */
        d += a->factors ? log(s.weighted) + (a->top - a->offset[g]) : log_total;
        if (a->margin) d += a->margin[g];
        const double power = exp(-fabs(d));
        h = a->h * (fmax(d, 0) + log1p(power));
        risk = a->h * (d > 0 ? 1 : power) / (1 + power);
    }
    row_terms t;
    t.loss = factor * (h + c * (log_total + mean_v));
    t.base = (float)(each * ((a->factors ? 0 : risk) - c * mean_v));
    t.slope = (float)(each * c);
    t.pull = a->factors ? (float)(scale * risk / s.weighted) : 0;
    t.own = (float)(-scale * risk);
    return t;
}

#include "_avx2.h"
#include "_rows.h"
#include "_undefine.h"

#include "_avx512.h"
#include "_rows.h"
#include "_undefine.h"

static void work(int64_t begin, int64_t end, void *context) {
    job *a = context;
    float *scratch = NULL;
    if (a->gradient && (a->half || a->gradient == a->logits)) {
        scratch = malloc((size_t)(a->classes * a->group) * sizeof *scratch);
        if (!scratch) {
            __atomic_store_n(&a->failed, 1, __ATOMIC_RELAXED);
            return;
        }
    }
    (a->level == 2 ? rows_avx512 : rows_avx2)(a, begin, end, scratch);
    free(scratch);
}

/* Read and check the targets and find what the mean divides by. */
static int read_targets(job *a, const request *r) {
    const int64_t count = r->rows, classes = r->classes, ignore_index = r->ignore_index;
    const float *weight = r->weight;
    row_state *rows = a->rows;
    double total = 0;
    for (int64_t n = 0; n < count; n++) {
        const int64_t g = __atomic_load_n(&r->target[n], __ATOMIC_RELAXED);
        rows[n].target = g == ignore_index ? -1 : g;
        if (g == ignore_index) continue;
        if (g < 0 || g >= classes) return NO_CLASS;
        total += weight ? weight[g] : 1.0;
    }
    a->divisor = r->reduction == MEAN ? total : 1.0;
    return DONE;
}

static int prepare_offset(job *a, float *factors) {
    double low = INFINITY, high = -INFINITY;
    for (int64_t k = 0; k < a->classes; k++) {
        const double o = a->offset[k];
        if (!isfinite(o)) return NOT_SUPPORTED; /* -inf: where the largest logit is masked, exp would be 0 for all others */
        low = o < low ? o : low;
        high = o > high ? o : high;
    }
    if (high - low > SPAN) return NOT_SUPPORTED;
    for (int64_t k = 0; k < a->classes; k++) factors[k] = (float)exp(a->offset[k] - high);
    a->top = high;
    a->factors = factors;
    return DONE;
}

static int run(job *a, const request *r) {
    const int64_t rows = r->rows;
    int status = read_targets(a, r);
    if (status == DONE && a->offset) status = prepare_offset(a, a->factors);
    if (status != DONE) return status;
    const int64_t fit = CACHED / a->classes;
    a->group = fit < 1 ? 1 : fit > GROUP ? GROUP : (int)fit;
    const int64_t grain = a->classes < GRAIN ? GRAIN / a->classes : 1;
    if (!r->split || rows <= grain)
        work(0, rows, a);
    else if (r->split(0, rows, grain, work, a) != 0)
        return NOT_SUPPORTED;
    if (a->failed) return NO_MEMORY;
    double sum = 0;
    for (int64_t n = 0; n < rows; n++) {
        if (r->reduction == NONE) r->loss[n] = (float)a->rows[n].loss;
        sum += a->rows[n].loss;
    }
    if (r->reduction != NONE) *r->loss = (float)(sum / a->divisor);
    return DONE;
}

/* The best this processor can do: 0 nothing, 1 AVX2 with FMA, 2 AVX-512. */
EXPORT int evenhand_level(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") ? 2 : 1;
}

/* The number of AMX tile palettes: 0 where a machine has no AMX, whatever else it announces. */
EXPORT int evenhand_amx_palettes(void) {
    unsigned palettes, b, c, d;
    return __get_cpuid_count(0x1D, 0, &palettes, &b, &c, &d) ? (int)palettes : 0;
}

/* Whether the memory of logits and target reaches to their last elements: it may have been freed or cut. */
static int is_stored(const request *r) {
    const int64_t last = r->logits_start + (r->rows - 1) * r->stride + r->classes;
    return !r->rows || (last * (r->half ? 2 : 4) <= r->logits_bytes &&
                        (r->target_start + r->rows) * (int64_t)sizeof *r->target <= r->target_bytes);
}

EXPORT int evenhand_cce(const request *r) {
    if (r->level < 1 || r->level > evenhand_level() || r->classes < 2) return NOT_SUPPORTED;
    if (!is_stored(r)) return NOT_STORED;
    if (r->rows && (!r->logits || !r->target)) return NOT_SUPPORTED; /* as of torch's zeros that have no memory */
    row_state few[256];
    row_state *rows = r->rows <= 256 ? few : malloc((size_t)r->rows * sizeof *rows);
    float *factors = r->offset ? calloc((size_t)r->classes + LANES, sizeof *factors) : NULL;
    job a = {.logits = r->logits, .gradient = r->gradient, .weight = r->weight, .offset = r->offset,
             .margin = r->margin, .shares = r->shares, .factors = factors, .rows = rows, .h = r->h, .c = r->c,
             .classes = r->classes, .stride = r->stride, .half = r->half != 0, .level = (int)r->level};
    const int status = rows && (factors || !r->offset) ? run(&a, r) : NO_MEMORY;
    if (rows != few) free(rows);
    free(factors);
    return status;
}

#else

EXPORT int evenhand_level(void) { return 0; }
EXPORT int evenhand_amx_palettes(void) { return 0; }

#endif
