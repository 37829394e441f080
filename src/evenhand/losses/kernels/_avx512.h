/* Vector operations on 16 floats: AVX-512 F. */
#define TARGET __attribute__((target("avx512f")))
#define FN(name) name##_avx512
#define W 16
#define V __m512
#define V_SET _mm512_set1_ps
#define V_LOAD _mm512_loadu_ps
#define V_STORE _mm512_storeu_ps
#define V_LOAD_SOME load_lanes_avx512
#define V_STORE_SOME store_lanes_avx512
#define V_ADD _mm512_add_ps
#define V_SUB _mm512_sub_ps
#define V_MUL _mm512_mul_ps
#define V_MAX _mm512_max_ps
#define V_FMADD _mm512_fmadd_ps
#define V_FNMADD _mm512_fnmadd_ps
#define V_SCALE scale_avx512
#define V_LOAD_HALF load_half_avx512
#define V_STORE_HALF store_half_avx512
#define V_SUM sum_avx512
#define V_TOP _mm512_reduce_max_ps

static inline TARGET __mmask16 lanes_avx512(int64_t count, int64_t skip) {
    const unsigned first = (1u << count) - 1; /* count is at most 16 */
    return (__mmask16)(skip < 0 || skip > 15 ? first : first & ~(1u << skip));
}

/* The first `count` floats without the one at `skip`, no more than those being read; -inf in their place. */
static inline TARGET V load_lanes_avx512(const float *p, int64_t count, int64_t skip) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), lanes_avx512(count, skip), p);
}

static inline TARGET void store_lanes_avx512(float *p, int64_t count, V x) {
    _mm512_mask_storeu_ps(p, lanes_avx512(count, -1), x);
}

/* y times the power of 2 whose exponent the lowest bits of t are; 0 where x is below the limit. */
static inline TARGET V scale_avx512(V y, V t, V x, V limit) {
    const V power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t), 23));
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), y, power);
}

static inline TARGET V load_half_avx512(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline TARGET void store_half_avx512(uint16_t *p, V x) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1)); /* ties go to even */
    __m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    near = _mm512_mask_set1_epi32(near, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), 0x7fc00000);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(near, 16)));
}

static inline TARGET double sum_avx512(V x) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
    __m512d s = _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(high));
    return _mm512_reduce_add_pd(s);
}
