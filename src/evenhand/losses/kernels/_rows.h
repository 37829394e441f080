/* The loss and gradient of rows for one instruction set: included by cce.c once for each, after its vector operations.

   For one row of logits z with the correct class g: m is the largest logit of the other classes, v = m - z >= 0 their
   distance from it, e = exp(-v), S = sum e, T = sum e v, q = e / S. Then

       C = log S + T / S                      dC/dz_k = q_k (v_k - T / S)
       H = softplus(d), d = m + log S - z_g   dH/dz_k = q_k sigmoid(d),   dH/dz_g = -sigmoid(d)

   With an offset o on the logits of H, its sum is S' = sum e w, w = exp(o - max o): still one exp for each element.
   A row is read three times, from memory once: for m, for e (kept in the row of the gradient), for the gradient. */

/* exp(x) for x <= 0, to 2 units in the last place; 0 below ln 2^-126, where float32 has fewer digits; NaN stays. */
static inline TARGET V FN(exp)(V x) {
    /* Adding 1.5 * 2^23 rounds to an integer n, left in the lowest bits; 127 more makes those the exponent of 2^n. */
    const V magic = V_SET(12583039.0f), t = V_FMADD(x, V_SET(1.44269504f), magic), n = V_SUB(t, magic);
    V r = V_FNMADD(n, V_SET(0.693145752f), x); /* ln 2 in two parts, the first so short that n times it is exact */
    r = V_FNMADD(n, V_SET(1.42860677e-6f), r);
    V p = V_SET(1.3814174e-3f); /* exp r = 1 + r + r^2 p, minimax on |r| <= ln 2 / 2, relative error 3e-9 */
    p = V_FMADD(p, r, V_SET(8.3689215e-3f));
    p = V_FMADD(p, r, V_SET(4.1668408e-2f));
    p = V_FMADD(p, r, V_SET(1.6666520e-1f));
    p = V_FMADD(p, r, V_SET(4.9999994e-1f));
    V y = V_ADD(V_FMADD(V_MUL(r, r), p, r), V_SET(1.0f));
    return V_SCALE(y, t, x, V_SET(-87.33654f));
}

static inline TARGET V FN(load)(const void *z, int64_t i, int half) {
    return half ? V_LOAD_HALF((const uint16_t *)z + i) : V_LOAD((const float *)z + i);
}

/* The `count` elements from i on, at most W, without the one at g: -inf stands for what is not there. */
static inline TARGET V FN(load_some)(const void *z, int64_t i, int64_t count, int64_t g, int half) {
    if (!half) return V_LOAD_SOME((const float *)z + i, count, g - i);
    float lanes[W];
    for (int64_t j = 0; j < W; j++) lanes[j] = j < count ? element(z, i + j, 1) : 0.0f;
    return V_LOAD_SOME(lanes, count, g - i);
}

static inline TARGET void FN(store)(void *out, int64_t i, V x, int half) {
    if (half)
        V_STORE_HALF((uint16_t *)out + i, x);
    else
        V_STORE((float *)out + i, x);
}

static inline TARGET void FN(store_some)(void *out, int64_t i, int64_t count, V x, int half) {
    if (half) {
        uint16_t lanes[W];
        V_STORE_HALF(lanes, x);
        memcpy((uint16_t *)out + i, lanes, (size_t)count * sizeof *lanes);
    } else {
        V_STORE_SOME((float *)out + i, count, x);
    }
}

/* z - m, no lower than FAR, where exp is 0 and a product with it is no NaN; the order of the two keeps a NaN. */
static inline TARGET V FN(below)(V z, V m) { return V_MAX(V_SET(FAR), V_SUB(z, m)); }

/* Sums of a block of elements in float, of the blocks in double: what a lane adds up in float stays short. */
typedef struct {
    V total, spread, weighted;
    double block_total, block_spread, block_weighted;
} FN(sums);

static inline TARGET void FN(flush)(FN(sums) *s, int weighted) {
    s->block_total += V_SUM(s->total);
    s->block_spread += V_SUM(s->spread);
    s->total = s->spread = V_SET(0.0f);
    if (weighted) {
        s->block_weighted += V_SUM(s->weighted);
        s->weighted = V_SET(0.0f);
    }
}

static inline TARGET V FN(add)(FN(sums) *s, V z, V m, V w, int weighted) {
    const V x = FN(below)(z, m);
    const V e = FN(exp)(x);
    s->total = V_ADD(s->total, e);
    s->spread = V_FNMADD(e, x, s->spread);
    if (weighted) s->weighted = V_FMADD(e, w, s->weighted);
    return e;
}

/* The first two readings of a row; the powers behind its last whole vector go to `tail_powers`. `half` and `weighted`
   are constants where this is inlined. */
static inline TARGET row_sums FN(sum_row)(const job *a, const void *z, int64_t g, float *powers, V *tail_powers, int half,
                                          int weighted) {
    const int64_t k = a->classes, whole = k / W * W, rest = k - whole, own = g < whole ? g / W * W : -1;
    const V own_part = own < 0 ? V_SET(-INFINITY) : FN(load_some)(z, own, W, g, half);
    const V tail = rest ? FN(load_some)(z, whole, rest, g, half) : V_SET(-INFINITY);

    V top = V_MAX(own_part, tail), top2 = top;
    int64_t i = 0;
    for (int side = 0; side < 2; side++) { /* the elements before the block of g, then those behind it */
        const int64_t end = side == 0 && own >= 0 ? own : whole;
        for (; i + 2 * W <= end; i += 2 * W) {
            top = V_MAX(FN(load)(z, i, half), top);
            top2 = V_MAX(FN(load)(z, i + W, half), top2);
        }
        for (; i < end; i += W) top = V_MAX(FN(load)(z, i, half), top);
        if (end < whole) i = own + W;
    }
    const float best = V_TOP(V_MAX(top, top2)), m = best < -FLT_MAX ? -FLT_MAX : best;

    const V largest = V_SET(m);
    FN(sums) s = {V_SET(0.0f), V_SET(0.0f), V_SET(0.0f), 0, 0, 0};
    for (int64_t start = 0; start < whole; start += BLOCK) {
        const int64_t end = start + BLOCK < whole ? start + BLOCK : whole;
        if (start) FN(flush)(&s, weighted);
        for (i = start; i < end; i += W) {
            const V x = i == own ? own_part : FN(load)(z, i, half);
            const V e = FN(add)(&s, x, largest, weighted ? V_LOAD(a->factors + i) : x, weighted);
            if (powers) V_STORE(powers + i, e);
        }
    }
    if (rest) {
        const V w = weighted ? V_LOAD(a->factors + whole) : tail; /* the factors have zeros behind them */
        *tail_powers = FN(add)(&s, tail, largest, w, weighted);
    }
    FN(flush)(&s, weighted);
    return (row_sums){m, s.block_total, s.block_spread, s.block_weighted};
}

/* The third reading. `powers` may be the row of the gradient itself. */
static inline TARGET void FN(gradient_row)(const job *a, const void *z, int64_t g, float m, row_terms t,
                                           const float *powers, V tail_powers, void *gradient, int half, int weighted) {
    const int64_t whole = a->classes / W * W, rest = a->classes - whole;
    const V largest = V_SET(m), base = V_SET(t.base), slope = V_SET(t.slope), pull = V_SET(t.pull);
    for (int64_t i = 0; i < whole; i += W) {
        const V e = V_LOAD(powers + i), x = FN(below)(FN(load)(z, i, half), largest);
        const V level = weighted ? V_FMADD(pull, V_LOAD(a->factors + i), base) : base;
        FN(store)(gradient, i, V_FNMADD(V_MUL(e, x), slope, V_MUL(e, level)), half);
    }
    if (rest) {
        const V e = tail_powers, x = FN(below)(FN(load_some)(z, whole, rest, -1, half), largest);
        const V level = weighted ? V_FMADD(pull, V_LOAD(a->factors + whole), base) : base;
        FN(store_some)(gradient, whole, rest, V_FNMADD(V_MUL(e, x), slope, V_MUL(e, level)), half);
    }
    set_element(gradient, g, t.own, half);
}

/* A few rows at a time, a reading after the other: the processor then works on several of them at once. */
static inline TARGET void FN(group)(const job *a, int64_t begin, int64_t end, float *scratch, int half, int weighted) {
    row_sums sums[GROUP];
    row_terms terms[GROUP];
    float *powers[GROUP];
    V tails[GROUP];
    for (int64_t n = begin, j = 0; n < end; n++, j++) {
        const int64_t g = a->rows[n].target;
        powers[j] = scratch ? scratch + j * a->classes : gradient_at(a, n);
        tails[j] = V_SET(0.0f);
        if (g >= 0) sums[j] = FN(sum_row)(a, logits_at(a, n), g, powers[j], &tails[j], half, weighted);
    }
    for (int64_t n = begin, j = 0; n < end; n++, j++) {
        const int64_t g = a->rows[n].target;
        a->rows[n].loss = 0;
        if (g < 0) continue;
        terms[j] = finish_row(a, element(logits_at(a, n), g, half), g, sums[j]);
        a->rows[n].loss = terms[j].loss;
    }
    for (int64_t n = begin, j = 0; a->gradient && n < end; n++, j++) {
        const int64_t g = a->rows[n].target;
        if (g < 0)
            memset(gradient_at(a, n), 0, (size_t)a->classes * (half ? 2 : 4));
        else
            FN(gradient_row)(a, logits_at(a, n), g, sums[j].largest, terms[j], powers[j], tails[j], gradient_at(a, n),
                             half, weighted);
    }
}

static TARGET void FN(rows)(const job *a, int64_t begin, int64_t end, float *scratch) {
    for (int64_t next; begin < end; begin = next) {
        next = begin + a->group < end ? begin + a->group : end;
        if (a->half && a->factors)
            FN(group)(a, begin, next, scratch, 1, 1);
        else if (a->half)
            FN(group)(a, begin, next, scratch, 1, 0);
        else if (a->factors)
            FN(group)(a, begin, next, scratch, 0, 1);
        else
            FN(group)(a, begin, next, scratch, 0, 0);
    }
}
