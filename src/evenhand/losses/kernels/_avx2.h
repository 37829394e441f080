/* Vector operations on 8 floats: AVX2 and FMA. */
#define TARGET __attribute__((target("avx2,fma")))
#define FN(name) name##_avx2
#define W 8
#define V __m256
#define V_SET _mm256_set1_ps
#define V_LOAD _mm256_loadu_ps
#define V_STORE _mm256_storeu_ps
#define V_LOAD_SOME load_lanes_avx2
#define V_STORE_SOME store_lanes_avx2
#define V_ADD _mm256_add_ps
#define V_SUB _mm256_sub_ps
#define V_MUL _mm256_mul_ps
#define V_MAX _mm256_max_ps
#define V_FMADD _mm256_fmadd_ps
#define V_FNMADD _mm256_fnmadd_ps
#define V_SCALE scale_avx2
#define V_LOAD_HALF load_half_avx2
#define V_STORE_HALF store_half_avx2
#define V_SUM sum_avx2
#define V_TOP top_avx2

static inline TARGET __m256i lanes_avx2(int64_t count, int64_t skip) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int none = skip < 0 || skip > 7 ? 8 : (int)skip;
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(lane, _mm256_set1_epi32(none)),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lane));
}

/* The first `count` floats without the one at `skip`, no more than those being read; -inf in their place. */
static inline TARGET V load_lanes_avx2(const float *p, int64_t count, int64_t skip) {
    const __m256i there = lanes_avx2(count, skip);
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_maskload_ps(p, there), _mm256_castsi256_ps(there));
}

static inline TARGET void store_lanes_avx2(float *p, int64_t count, V x) {
    _mm256_maskstore_ps(p, lanes_avx2(count, -1), x);
}

/* y times the power of 2 whose exponent the lowest bits of t are; 0 where x is below the limit. */
static inline TARGET V scale_avx2(V y, V t, V x, V limit) {
    const V power = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
    return _mm256_and_ps(_mm256_mul_ps(y, power), _mm256_cmp_ps(x, limit, _CMP_NLT_UQ));
}

static inline TARGET V load_half_avx2(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

static inline TARGET void store_half_avx2(uint16_t *p, V x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1)); /* ties go to even */
    __m256i near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    near = _mm256_blendv_epi8(near, _mm256_set1_epi32(0x7fc00000), _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    near = _mm256_srli_epi32(near, 16);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(near, near), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}

static inline TARGET double sum_avx2(V x) {
    __m256d s = _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}

static inline TARGET float top_avx2(V x) {
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_shuffle_ps(h, h, 1)));
}
