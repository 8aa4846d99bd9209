#include <cuda_fp16.h>
template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T v[N];
};
template <typename V>
static __device__ __forceinline__ V emmy_load_if(bool guard, const void* from) {
    struct alignas(sizeof(V)) words {
        unsigned w[sizeof(V) / 4];
    } r = {};
    if (guard) r = *static_cast<const words*>(from);
    V v;
    memcpy(&v, &r, sizeof(V));
    return v;
}
static __device__ __forceinline__ unsigned emmy_pack_f16(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}
static __device__ __forceinline__ unsigned emmy_shared(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
template <int BYTES>
static __device__ __forceinline__ void emmy_copy_async(unsigned at, const void* from, bool guard) {
    const int bytes = guard ? BYTES : 0;
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     ::"r"(at), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
    }
}
static __device__ __forceinline__ void emmy_ldmatrix_x4(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(from) : "memory");
}
static __device__ __forceinline__ void emmy_mma_m16n8k16_f16_f32(
    float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ float emmy_max_f32(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
static __device__ __forceinline__ void emmy_ldmatrix_x4_trans(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(from) : "memory");
}
extern "C" __global__ void __launch_bounds__(128) k_attention(
    const __half* __restrict__ q,
    const __half* __restrict__ k,
    const __half* __restrict__ v,
    __half* __restrict__ out,
    const int s) {
    __shared__ __align__(128) __half k_tile[8192];
    __shared__ __align__(128) __half v_tile[8192];
    const int bx = blockIdx.x;
    const int by = blockIdx.y;
    const int tid = threadIdx.x;
    const int m0 = bx * 64;
    const int lane = tid & 31;
    const int row0 = (tid >> 5) * 16;
    const __half* const q_block = q + ((((long long)by * (long long)s) + (long long)m0) * 64LL);
    const __half* const k_head = k + (((long long)by * (long long)s) * 64LL);
    const __half* const v_head = v + (((long long)by * (long long)s) * 64LL);
    __half* const out_block = out + ((((long long)by * (long long)s) + (long long)m0) * 64LL);
    unsigned q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3;
    unsigned q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3;
    float out_acc_0_0 = 0.0f, out_acc_0_1 = 0.0f, out_acc_0_2 = 0.0f, out_acc_0_3 = 0.0f, out_acc_1_0 = 0.0f, out_acc_1_1 = 0.0f, out_acc_1_2 = 0.0f, out_acc_1_3 = 0.0f;
    float out_acc_2_0 = 0.0f, out_acc_2_1 = 0.0f, out_acc_2_2 = 0.0f, out_acc_2_3 = 0.0f, out_acc_3_0 = 0.0f, out_acc_3_1 = 0.0f, out_acc_3_2 = 0.0f, out_acc_3_3 = 0.0f;
    float out_acc_4_0 = 0.0f, out_acc_4_1 = 0.0f, out_acc_4_2 = 0.0f, out_acc_4_3 = 0.0f, out_acc_5_0 = 0.0f, out_acc_5_1 = 0.0f, out_acc_5_2 = 0.0f, out_acc_5_3 = 0.0f;
    float out_acc_6_0 = 0.0f, out_acc_6_1 = 0.0f, out_acc_6_2 = 0.0f, out_acc_6_3 = 0.0f, out_acc_7_0 = 0.0f, out_acc_7_1 = 0.0f, out_acc_7_2 = 0.0f, out_acc_7_3 = 0.0f;
    float row_max_0 = __int_as_float(0xff800000), row_max_1 = __int_as_float(0xff800000);
    float row_sum_0 = 0.0f, row_sum_1 = 0.0f;
    const int t0 = row0 + (lane >> 2);
    const vec<__half, 2> q_block_v1 = emmy_load_if<vec<__half, 2>>(((m0 + t0) < s), q_block + ((t0 * 64) + ((lane & 3) * 2)));
    const int t1 = row0 + ((lane >> 2) + 8);
    const vec<__half, 2> q_block_v2 = emmy_load_if<vec<__half, 2>>(((m0 + t1) < s), q_block + ((t1 * 64) + ((lane & 3) * 2)));
    const int t2 = row0 + (lane >> 2);
    const vec<__half, 2> q_block_v3 = emmy_load_if<vec<__half, 2>>(((m0 + t2) < s), q_block + ((t2 * 64) + (((lane & 3) * 2) + 8)));
    const int t3 = row0 + ((lane >> 2) + 8);
    const vec<__half, 2> q_block_v4 = emmy_load_if<vec<__half, 2>>(((m0 + t3) < s), q_block + ((t3 * 64) + (((lane & 3) * 2) + 8)));
    q_frag_0_p0 = emmy_pack_f16(__half2float(q_block_v1.v[0]), __half2float(q_block_v1.v[1]));
    q_frag_0_p1 = emmy_pack_f16(__half2float(q_block_v2.v[0]), __half2float(q_block_v2.v[1]));
    q_frag_0_p2 = emmy_pack_f16(__half2float(q_block_v3.v[0]), __half2float(q_block_v3.v[1]));
    q_frag_0_p3 = emmy_pack_f16(__half2float(q_block_v4.v[0]), __half2float(q_block_v4.v[1]));
    const int t4 = row0 + (lane >> 2);
    const vec<__half, 2> q_block_v5 = emmy_load_if<vec<__half, 2>>(((m0 + t4) < s), q_block + ((t4 * 64) + (((lane & 3) * 2) + 16)));
    const int t5 = row0 + ((lane >> 2) + 8);
    const vec<__half, 2> q_block_v6 = emmy_load_if<vec<__half, 2>>(((m0 + t5) < s), q_block + ((t5 * 64) + (((lane & 3) * 2) + 16)));
    const int t6 = row0 + (lane >> 2);
    const vec<__half, 2> q_block_v7 = emmy_load_if<vec<__half, 2>>(((m0 + t6) < s), q_block + ((t6 * 64) + (((lane & 3) * 2) + 24)));
    const int t7 = row0 + ((lane >> 2) + 8);
    const vec<__half, 2> q_block_v8 = emmy_load_if<vec<__half, 2>>(((m0 + t7) < s), q_block + ((t7 * 64) + (((lane & 3) * 2) + 24)));
    q_frag_1_p0 = emmy_pack_f16(__half2float(q_block_v5.v[0]), __half2float(q_block_v5.v[1]));
    q_frag_1_p1 = emmy_pack_f16(__half2float(q_block_v6.v[0]), __half2float(q_block_v6.v[1]));
    q_frag_1_p2 = emmy_pack_f16(__half2float(q_block_v7.v[0]), __half2float(q_block_v7.v[1]));
    q_frag_1_p3 = emmy_pack_f16(__half2float(q_block_v8.v[0]), __half2float(q_block_v8.v[1]));
    const int t8 = row0 + (lane >> 2);
    const vec<__half, 2> q_block_v9 = emmy_load_if<vec<__half, 2>>(((m0 + t8) < s), q_block + ((t8 * 64) + (((lane & 3) * 2) + 32)));
    const int t9 = row0 + ((lane >> 2) + 8);
    const vec<__half, 2> q_block_v10 = emmy_load_if<vec<__half, 2>>(((m0 + t9) < s), q_block + ((t9 * 64) + (((lane & 3) * 2) + 32)));
    const int t10 = row0 + (lane >> 2);
    const vec<__half, 2> q_block_v11 = emmy_load_if<vec<__half, 2>>(((m0 + t10) < s), q_block + ((t10 * 64) + (((lane & 3) * 2) + 40)));
    const int t11 = row0 + ((lane >> 2) + 8);
    const vec<__half, 2> q_block_v12 = emmy_load_if<vec<__half, 2>>(((m0 + t11) < s), q_block + ((t11 * 64) + (((lane & 3) * 2) + 40)));
    q_frag_2_p0 = emmy_pack_f16(__half2float(q_block_v9.v[0]), __half2float(q_block_v9.v[1]));
    q_frag_2_p1 = emmy_pack_f16(__half2float(q_block_v10.v[0]), __half2float(q_block_v10.v[1]));
    q_frag_2_p2 = emmy_pack_f16(__half2float(q_block_v11.v[0]), __half2float(q_block_v11.v[1]));
    q_frag_2_p3 = emmy_pack_f16(__half2float(q_block_v12.v[0]), __half2float(q_block_v12.v[1]));
    const int t12 = row0 + (lane >> 2);
    const vec<__half, 2> q_block_v13 = emmy_load_if<vec<__half, 2>>(((m0 + t12) < s), q_block + ((t12 * 64) + (((lane & 3) * 2) + 48)));
    const int t13 = row0 + ((lane >> 2) + 8);
    const vec<__half, 2> q_block_v14 = emmy_load_if<vec<__half, 2>>(((m0 + t13) < s), q_block + ((t13 * 64) + (((lane & 3) * 2) + 48)));
    const int t14 = row0 + (lane >> 2);
    const vec<__half, 2> q_block_v15 = emmy_load_if<vec<__half, 2>>(((m0 + t14) < s), q_block + ((t14 * 64) + (((lane & 3) * 2) + 56)));
    const int t15 = row0 + ((lane >> 2) + 8);
    const vec<__half, 2> q_block_v16 = emmy_load_if<vec<__half, 2>>(((m0 + t15) < s), q_block + ((t15 * 64) + (((lane & 3) * 2) + 56)));
    q_frag_3_p0 = emmy_pack_f16(__half2float(q_block_v13.v[0]), __half2float(q_block_v13.v[1]));
    q_frag_3_p1 = emmy_pack_f16(__half2float(q_block_v14.v[0]), __half2float(q_block_v14.v[1]));
    q_frag_3_p2 = emmy_pack_f16(__half2float(q_block_v15.v[0]), __half2float(q_block_v15.v[1]));
    q_frag_3_p3 = emmy_pack_f16(__half2float(q_block_v16.v[0]), __half2float(q_block_v16.v[1]));
    if (0 < min(((s + 63) >> 6), ((m0 + 127) >> 6))) {
        const int t16 = tid >> 3;
        const int t17 = (t16 * 64) + ((tid & 7) * 8);
        emmy_copy_async<16>(emmy_shared(k_tile) + (t17 ^ ((t17 >> 3) & 56)) * 2u, k_head + t17, t16 < s);
        const int t18 = tid + 128;
        const int t19 = t18 >> 3;
        const int t20 = (t19 * 64) + ((t18 & 7) * 8);
        emmy_copy_async<16>(emmy_shared(k_tile) + (t20 ^ ((t20 >> 3) & 56)) * 2u, k_head + t20, t19 < s);
        const int t21 = tid + 256;
        const int t22 = t21 >> 3;
        const int t23 = (t22 * 64) + ((t21 & 7) * 8);
        emmy_copy_async<16>(emmy_shared(k_tile) + (t23 ^ ((t23 >> 3) & 56)) * 2u, k_head + t23, t22 < s);
        const int t24 = tid + 384;
        const int t25 = t24 >> 3;
        const int t26 = (t25 * 64) + ((t24 & 7) * 8);
        emmy_copy_async<16>(emmy_shared(k_tile) + (t26 ^ ((t26 >> 3) & 56)) * 2u, k_head + t26, t25 < s);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (0 < min(((s + 63) >> 6), ((m0 + 127) >> 6))) {
        const int t27 = tid >> 3;
        const int t28 = (t27 * 64) + ((tid & 7) * 8);
        emmy_copy_async<16>(emmy_shared(v_tile) + (t28 ^ ((t28 >> 3) & 56)) * 2u, v_head + t28, t27 < s);
        const int t29 = tid + 128;
        const int t30 = t29 >> 3;
        const int t31 = (t30 * 64) + ((t29 & 7) * 8);
        emmy_copy_async<16>(emmy_shared(v_tile) + (t31 ^ ((t31 >> 3) & 56)) * 2u, v_head + t31, t30 < s);
        const int t32 = tid + 256;
        const int t33 = t32 >> 3;
        const int t34 = (t33 * 64) + ((t32 & 7) * 8);
        emmy_copy_async<16>(emmy_shared(v_tile) + (t34 ^ ((t34 >> 3) & 56)) * 2u, v_head + t34, t33 < s);
        const int t35 = tid + 384;
        const int t36 = t35 >> 3;
        const int t37 = (t36 * 64) + ((t35 & 7) * 8);
        emmy_copy_async<16>(emmy_shared(v_tile) + (t37 ^ ((t37 >> 3) & 56)) * 2u, v_head + t37, t36 < s);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    int turn2_0 = 0;
    const int t38 = min(((s + 63) >> 6), ((m0 + 127) >> 6));
    for (int j = 0; j < t38; j += 1) {
        const int turn2_next = (turn2_0 == 1) ? 0 : (turn2_0 + 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if ((j + 1) < min(((s + 63) >> 6), ((m0 + 127) >> 6))) {
            const int t39 = tid >> 3;
            const int t40 = (tid & 7) * 8;
            const int t41 = (t39 * 64) + t40;
            const int t42 = ((j + 1) * 64) + t39;
            emmy_copy_async<16>(emmy_shared(k_tile) + ((turn2_next * 4096) + (t41 ^ ((t41 >> 3) & 56))) * 2u, k_head + ((t42 * 64) + t40), t42 < s);
            const int t43 = tid + 128;
            const int t44 = t43 >> 3;
            const int t45 = (t43 & 7) * 8;
            const int t46 = (t44 * 64) + t45;
            const int t47 = ((j + 1) * 64) + t44;
            emmy_copy_async<16>(emmy_shared(k_tile) + ((turn2_next * 4096) + (t46 ^ ((t46 >> 3) & 56))) * 2u, k_head + ((t47 * 64) + t45), t47 < s);
            const int t48 = tid + 256;
            const int t49 = t48 >> 3;
            const int t50 = (t48 & 7) * 8;
            const int t51 = (t49 * 64) + t50;
            const int t52 = ((j + 1) * 64) + t49;
            emmy_copy_async<16>(emmy_shared(k_tile) + ((turn2_next * 4096) + (t51 ^ ((t51 >> 3) & 56))) * 2u, k_head + ((t52 * 64) + t50), t52 < s);
            const int t53 = tid + 384;
            const int t54 = t53 >> 3;
            const int t55 = (t53 & 7) * 8;
            const int t56 = (t54 * 64) + t55;
            const int t57 = ((j + 1) * 64) + t54;
            emmy_copy_async<16>(emmy_shared(k_tile) + ((turn2_next * 4096) + (t56 ^ ((t56 >> 3) & 56))) * 2u, k_head + ((t57 * 64) + t55), t57 < s);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        float scores_0_0 = 0.0f, scores_0_1 = 0.0f, scores_0_2 = 0.0f, scores_0_3 = 0.0f, scores_1_0 = 0.0f, scores_1_1 = 0.0f, scores_1_2 = 0.0f, scores_1_3 = 0.0f;
        float scores_2_0 = 0.0f, scores_2_1 = 0.0f, scores_2_2 = 0.0f, scores_2_3 = 0.0f, scores_3_0 = 0.0f, scores_3_1 = 0.0f, scores_3_2 = 0.0f, scores_3_3 = 0.0f;
        float scores_4_0 = 0.0f, scores_4_1 = 0.0f, scores_4_2 = 0.0f, scores_4_3 = 0.0f, scores_5_0 = 0.0f, scores_5_1 = 0.0f, scores_5_2 = 0.0f, scores_5_3 = 0.0f;
        float scores_6_0 = 0.0f, scores_6_1 = 0.0f, scores_6_2 = 0.0f, scores_6_3 = 0.0f, scores_7_0 = 0.0f, scores_7_1 = 0.0f, scores_7_2 = 0.0f, scores_7_3 = 0.0f;
        unsigned k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1;
        const int t58 = (((lane & 7) + ((lane >> 4) * 8)) * 64) + (((lane >> 3) & 1) * 8);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t58 ^ ((t58 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_0_0, scores_0_1, scores_0_2, scores_0_3, q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_1_0, scores_1_1, scores_1_2, scores_1_3, q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, k_frag_1_p0, k_frag_1_p1);
        const int t59 = (((lane & 7) + (((lane >> 4) + 2) * 8)) * 64) + (((lane >> 3) & 1) * 8);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t59 ^ ((t59 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_2_0, scores_2_1, scores_2_2, scores_2_3, q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_3_0, scores_3_1, scores_3_2, scores_3_3, q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, k_frag_1_p0, k_frag_1_p1);
        const int t60 = (((lane & 7) + (((lane >> 4) + 4) * 8)) * 64) + (((lane >> 3) & 1) * 8);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t60 ^ ((t60 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_4_0, scores_4_1, scores_4_2, scores_4_3, q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_5_0, scores_5_1, scores_5_2, scores_5_3, q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, k_frag_1_p0, k_frag_1_p1);
        const int t61 = (((lane & 7) + (((lane >> 4) + 6) * 8)) * 64) + (((lane >> 3) & 1) * 8);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t61 ^ ((t61 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_6_0, scores_6_1, scores_6_2, scores_6_3, q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_7_0, scores_7_1, scores_7_2, scores_7_3, q_frag_0_p0, q_frag_0_p1, q_frag_0_p2, q_frag_0_p3, k_frag_1_p0, k_frag_1_p1);
        const int t62 = (((lane & 7) + ((lane >> 4) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 16);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t62 ^ ((t62 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_0_0, scores_0_1, scores_0_2, scores_0_3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_1_0, scores_1_1, scores_1_2, scores_1_3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3, k_frag_1_p0, k_frag_1_p1);
        const int t63 = (((lane & 7) + (((lane >> 4) + 2) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 16);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t63 ^ ((t63 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_2_0, scores_2_1, scores_2_2, scores_2_3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_3_0, scores_3_1, scores_3_2, scores_3_3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3, k_frag_1_p0, k_frag_1_p1);
        const int t64 = (((lane & 7) + (((lane >> 4) + 4) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 16);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t64 ^ ((t64 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_4_0, scores_4_1, scores_4_2, scores_4_3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_5_0, scores_5_1, scores_5_2, scores_5_3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3, k_frag_1_p0, k_frag_1_p1);
        const int t65 = (((lane & 7) + (((lane >> 4) + 6) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 16);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t65 ^ ((t65 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_6_0, scores_6_1, scores_6_2, scores_6_3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_7_0, scores_7_1, scores_7_2, scores_7_3, q_frag_1_p0, q_frag_1_p1, q_frag_1_p2, q_frag_1_p3, k_frag_1_p0, k_frag_1_p1);
        const int t66 = (((lane & 7) + ((lane >> 4) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 32);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t66 ^ ((t66 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_0_0, scores_0_1, scores_0_2, scores_0_3, q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_1_0, scores_1_1, scores_1_2, scores_1_3, q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, k_frag_1_p0, k_frag_1_p1);
        const int t67 = (((lane & 7) + (((lane >> 4) + 2) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 32);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t67 ^ ((t67 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_2_0, scores_2_1, scores_2_2, scores_2_3, q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_3_0, scores_3_1, scores_3_2, scores_3_3, q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, k_frag_1_p0, k_frag_1_p1);
        const int t68 = (((lane & 7) + (((lane >> 4) + 4) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 32);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t68 ^ ((t68 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_4_0, scores_4_1, scores_4_2, scores_4_3, q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_5_0, scores_5_1, scores_5_2, scores_5_3, q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, k_frag_1_p0, k_frag_1_p1);
        const int t69 = (((lane & 7) + (((lane >> 4) + 6) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 32);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t69 ^ ((t69 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_6_0, scores_6_1, scores_6_2, scores_6_3, q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_7_0, scores_7_1, scores_7_2, scores_7_3, q_frag_2_p0, q_frag_2_p1, q_frag_2_p2, q_frag_2_p3, k_frag_1_p0, k_frag_1_p1);
        const int t70 = (((lane & 7) + ((lane >> 4) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 48);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t70 ^ ((t70 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_0_0, scores_0_1, scores_0_2, scores_0_3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_1_0, scores_1_1, scores_1_2, scores_1_3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3, k_frag_1_p0, k_frag_1_p1);
        const int t71 = (((lane & 7) + (((lane >> 4) + 2) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 48);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t71 ^ ((t71 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_2_0, scores_2_1, scores_2_2, scores_2_3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_3_0, scores_3_1, scores_3_2, scores_3_3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3, k_frag_1_p0, k_frag_1_p1);
        const int t72 = (((lane & 7) + (((lane >> 4) + 4) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 48);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t72 ^ ((t72 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_4_0, scores_4_1, scores_4_2, scores_4_3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_5_0, scores_5_1, scores_5_2, scores_5_3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3, k_frag_1_p0, k_frag_1_p1);
        const int t73 = (((lane & 7) + (((lane >> 4) + 6) * 8)) * 64) + ((((lane >> 3) & 1) * 8) + 48);
        emmy_ldmatrix_x4(k_frag_0_p0, k_frag_0_p1, k_frag_1_p0, k_frag_1_p1, emmy_shared(k_tile) + ((turn2_0 * 4096) + (t73 ^ ((t73 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(scores_6_0, scores_6_1, scores_6_2, scores_6_3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3, k_frag_0_p0, k_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(scores_7_0, scores_7_1, scores_7_2, scores_7_3, q_frag_3_p0, q_frag_3_p1, q_frag_3_p2, q_frag_3_p3, k_frag_1_p0, k_frag_1_p1);
        const int t74 = (j * 64) + ((lane & 3) * 2);
        const float scores_v17_0 = ((t74 < s) && (t74 <= (m0 + (row0 + (lane >> 2))))) ? (scores_0_0 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t75 = (j * 64) + (((lane & 3) * 2) + 1);
        const float scores_v17_1 = ((t75 < s) && (t75 <= (m0 + (row0 + (lane >> 2))))) ? (scores_0_1 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t76 = (j * 64) + ((lane & 3) * 2);
        const float scores_v17_2 = ((t76 < s) && (t76 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_0_2 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t77 = (j * 64) + (((lane & 3) * 2) + 1);
        const float scores_v17_3 = ((t77 < s) && (t77 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_0_3 * 0.18033688011112042f) : __int_as_float(0xff800000);
        scores_0_0 = scores_v17_0;
        scores_0_1 = scores_v17_1;
        scores_0_2 = scores_v17_2;
        scores_0_3 = scores_v17_3;
        const int t78 = (j * 64) + (((lane & 3) * 2) + 8);
        const float scores_v18_0 = ((t78 < s) && (t78 <= (m0 + (row0 + (lane >> 2))))) ? (scores_1_0 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t79 = (j * 64) + (((lane & 3) * 2) + 9);
        const float scores_v18_1 = ((t79 < s) && (t79 <= (m0 + (row0 + (lane >> 2))))) ? (scores_1_1 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t80 = (j * 64) + (((lane & 3) * 2) + 8);
        const float scores_v18_2 = ((t80 < s) && (t80 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_1_2 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t81 = (j * 64) + (((lane & 3) * 2) + 9);
        const float scores_v18_3 = ((t81 < s) && (t81 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_1_3 * 0.18033688011112042f) : __int_as_float(0xff800000);
        scores_1_0 = scores_v18_0;
        scores_1_1 = scores_v18_1;
        scores_1_2 = scores_v18_2;
        scores_1_3 = scores_v18_3;
        const int t82 = (j * 64) + (((lane & 3) * 2) + 16);
        const float scores_v19_0 = ((t82 < s) && (t82 <= (m0 + (row0 + (lane >> 2))))) ? (scores_2_0 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t83 = (j * 64) + (((lane & 3) * 2) + 17);
        const float scores_v19_1 = ((t83 < s) && (t83 <= (m0 + (row0 + (lane >> 2))))) ? (scores_2_1 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t84 = (j * 64) + (((lane & 3) * 2) + 16);
        const float scores_v19_2 = ((t84 < s) && (t84 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_2_2 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t85 = (j * 64) + (((lane & 3) * 2) + 17);
        const float scores_v19_3 = ((t85 < s) && (t85 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_2_3 * 0.18033688011112042f) : __int_as_float(0xff800000);
        scores_2_0 = scores_v19_0;
        scores_2_1 = scores_v19_1;
        scores_2_2 = scores_v19_2;
        scores_2_3 = scores_v19_3;
        const int t86 = (j * 64) + (((lane & 3) * 2) + 24);
        const float scores_v20_0 = ((t86 < s) && (t86 <= (m0 + (row0 + (lane >> 2))))) ? (scores_3_0 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t87 = (j * 64) + (((lane & 3) * 2) + 25);
        const float scores_v20_1 = ((t87 < s) && (t87 <= (m0 + (row0 + (lane >> 2))))) ? (scores_3_1 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t88 = (j * 64) + (((lane & 3) * 2) + 24);
        const float scores_v20_2 = ((t88 < s) && (t88 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_3_2 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t89 = (j * 64) + (((lane & 3) * 2) + 25);
        const float scores_v20_3 = ((t89 < s) && (t89 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_3_3 * 0.18033688011112042f) : __int_as_float(0xff800000);
        scores_3_0 = scores_v20_0;
        scores_3_1 = scores_v20_1;
        scores_3_2 = scores_v20_2;
        scores_3_3 = scores_v20_3;
        const int t90 = (j * 64) + (((lane & 3) * 2) + 32);
        const float scores_v21_0 = ((t90 < s) && (t90 <= (m0 + (row0 + (lane >> 2))))) ? (scores_4_0 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t91 = (j * 64) + (((lane & 3) * 2) + 33);
        const float scores_v21_1 = ((t91 < s) && (t91 <= (m0 + (row0 + (lane >> 2))))) ? (scores_4_1 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t92 = (j * 64) + (((lane & 3) * 2) + 32);
        const float scores_v21_2 = ((t92 < s) && (t92 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_4_2 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t93 = (j * 64) + (((lane & 3) * 2) + 33);
        const float scores_v21_3 = ((t93 < s) && (t93 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_4_3 * 0.18033688011112042f) : __int_as_float(0xff800000);
        scores_4_0 = scores_v21_0;
        scores_4_1 = scores_v21_1;
        scores_4_2 = scores_v21_2;
        scores_4_3 = scores_v21_3;
        const int t94 = (j * 64) + (((lane & 3) * 2) + 40);
        const float scores_v22_0 = ((t94 < s) && (t94 <= (m0 + (row0 + (lane >> 2))))) ? (scores_5_0 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t95 = (j * 64) + (((lane & 3) * 2) + 41);
        const float scores_v22_1 = ((t95 < s) && (t95 <= (m0 + (row0 + (lane >> 2))))) ? (scores_5_1 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t96 = (j * 64) + (((lane & 3) * 2) + 40);
        const float scores_v22_2 = ((t96 < s) && (t96 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_5_2 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t97 = (j * 64) + (((lane & 3) * 2) + 41);
        const float scores_v22_3 = ((t97 < s) && (t97 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_5_3 * 0.18033688011112042f) : __int_as_float(0xff800000);
        scores_5_0 = scores_v22_0;
        scores_5_1 = scores_v22_1;
        scores_5_2 = scores_v22_2;
        scores_5_3 = scores_v22_3;
        const int t98 = (j * 64) + (((lane & 3) * 2) + 48);
        const float scores_v23_0 = ((t98 < s) && (t98 <= (m0 + (row0 + (lane >> 2))))) ? (scores_6_0 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t99 = (j * 64) + (((lane & 3) * 2) + 49);
        const float scores_v23_1 = ((t99 < s) && (t99 <= (m0 + (row0 + (lane >> 2))))) ? (scores_6_1 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t100 = (j * 64) + (((lane & 3) * 2) + 48);
        const float scores_v23_2 = ((t100 < s) && (t100 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_6_2 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t101 = (j * 64) + (((lane & 3) * 2) + 49);
        const float scores_v23_3 = ((t101 < s) && (t101 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_6_3 * 0.18033688011112042f) : __int_as_float(0xff800000);
        scores_6_0 = scores_v23_0;
        scores_6_1 = scores_v23_1;
        scores_6_2 = scores_v23_2;
        scores_6_3 = scores_v23_3;
        const int t102 = (j * 64) + (((lane & 3) * 2) + 56);
        const float scores_v24_0 = ((t102 < s) && (t102 <= (m0 + (row0 + (lane >> 2))))) ? (scores_7_0 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t103 = (j * 64) + (((lane & 3) * 2) + 57);
        const float scores_v24_1 = ((t103 < s) && (t103 <= (m0 + (row0 + (lane >> 2))))) ? (scores_7_1 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t104 = (j * 64) + (((lane & 3) * 2) + 56);
        const float scores_v24_2 = ((t104 < s) && (t104 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_7_2 * 0.18033688011112042f) : __int_as_float(0xff800000);
        const int t105 = (j * 64) + (((lane & 3) * 2) + 57);
        const float scores_v24_3 = ((t105 < s) && (t105 <= (m0 + (row0 + ((lane >> 2) + 8))))) ? (scores_7_3 * 0.18033688011112042f) : __int_as_float(0xff800000);
        scores_7_0 = scores_v24_0;
        scores_7_1 = scores_v24_1;
        scores_7_2 = scores_v24_2;
        scores_7_3 = scores_v24_3;
        float tile_max_0, tile_max_1;
        tile_max_0 = emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(row_max_0, scores_0_0), scores_0_1), scores_1_0), scores_1_1), scores_2_0), scores_2_1), scores_3_0), scores_3_1), scores_4_0), scores_4_1), scores_5_0), scores_5_1), scores_6_0), scores_6_1), scores_7_0), scores_7_1);
        const float other_c1 = __shfl_xor_sync(0xffffffffu, tile_max_0, 2);
        tile_max_0 = emmy_max_f32(tile_max_0, other_c1);
        const float other_c2 = __shfl_xor_sync(0xffffffffu, tile_max_0, 1);
        tile_max_0 = emmy_max_f32(tile_max_0, other_c2);
        const float shift0 = (tile_max_0 == __int_as_float(0xff800000)) ? 0.0f : tile_max_0;
        const float shrink0 = exp2f((row_max_0 - shift0));
        row_max_0 = tile_max_0;
        tile_max_1 = emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(emmy_max_f32(row_max_1, scores_0_2), scores_0_3), scores_1_2), scores_1_3), scores_2_2), scores_2_3), scores_3_2), scores_3_3), scores_4_2), scores_4_3), scores_5_2), scores_5_3), scores_6_2), scores_6_3), scores_7_2), scores_7_3);
        const float other_c3 = __shfl_xor_sync(0xffffffffu, tile_max_1, 2);
        tile_max_1 = emmy_max_f32(tile_max_1, other_c3);
        const float other_c4 = __shfl_xor_sync(0xffffffffu, tile_max_1, 1);
        tile_max_1 = emmy_max_f32(tile_max_1, other_c4);
        const float shift1 = (tile_max_1 == __int_as_float(0xff800000)) ? 0.0f : tile_max_1;
        const float shrink1 = exp2f((row_max_1 - shift1));
        row_max_1 = tile_max_1;
        const float scores_v25_0 = exp2f((scores_0_0 - shift0));
        const float scores_v25_1 = exp2f((scores_0_1 - shift0));
        const float scores_v25_2 = exp2f((scores_0_2 - shift1));
        const float scores_v25_3 = exp2f((scores_0_3 - shift1));
        scores_0_0 = scores_v25_0;
        scores_0_1 = scores_v25_1;
        scores_0_2 = scores_v25_2;
        scores_0_3 = scores_v25_3;
        const float scores_v26_0 = exp2f((scores_1_0 - shift0));
        const float scores_v26_1 = exp2f((scores_1_1 - shift0));
        const float scores_v26_2 = exp2f((scores_1_2 - shift1));
        const float scores_v26_3 = exp2f((scores_1_3 - shift1));
        scores_1_0 = scores_v26_0;
        scores_1_1 = scores_v26_1;
        scores_1_2 = scores_v26_2;
        scores_1_3 = scores_v26_3;
        const float scores_v27_0 = exp2f((scores_2_0 - shift0));
        const float scores_v27_1 = exp2f((scores_2_1 - shift0));
        const float scores_v27_2 = exp2f((scores_2_2 - shift1));
        const float scores_v27_3 = exp2f((scores_2_3 - shift1));
        scores_2_0 = scores_v27_0;
        scores_2_1 = scores_v27_1;
        scores_2_2 = scores_v27_2;
        scores_2_3 = scores_v27_3;
        const float scores_v28_0 = exp2f((scores_3_0 - shift0));
        const float scores_v28_1 = exp2f((scores_3_1 - shift0));
        const float scores_v28_2 = exp2f((scores_3_2 - shift1));
        const float scores_v28_3 = exp2f((scores_3_3 - shift1));
        scores_3_0 = scores_v28_0;
        scores_3_1 = scores_v28_1;
        scores_3_2 = scores_v28_2;
        scores_3_3 = scores_v28_3;
        const float scores_v29_0 = exp2f((scores_4_0 - shift0));
        const float scores_v29_1 = exp2f((scores_4_1 - shift0));
        const float scores_v29_2 = exp2f((scores_4_2 - shift1));
        const float scores_v29_3 = exp2f((scores_4_3 - shift1));
        scores_4_0 = scores_v29_0;
        scores_4_1 = scores_v29_1;
        scores_4_2 = scores_v29_2;
        scores_4_3 = scores_v29_3;
        const float scores_v30_0 = exp2f((scores_5_0 - shift0));
        const float scores_v30_1 = exp2f((scores_5_1 - shift0));
        const float scores_v30_2 = exp2f((scores_5_2 - shift1));
        const float scores_v30_3 = exp2f((scores_5_3 - shift1));
        scores_5_0 = scores_v30_0;
        scores_5_1 = scores_v30_1;
        scores_5_2 = scores_v30_2;
        scores_5_3 = scores_v30_3;
        const float scores_v31_0 = exp2f((scores_6_0 - shift0));
        const float scores_v31_1 = exp2f((scores_6_1 - shift0));
        const float scores_v31_2 = exp2f((scores_6_2 - shift1));
        const float scores_v31_3 = exp2f((scores_6_3 - shift1));
        scores_6_0 = scores_v31_0;
        scores_6_1 = scores_v31_1;
        scores_6_2 = scores_v31_2;
        scores_6_3 = scores_v31_3;
        const float scores_v32_0 = exp2f((scores_7_0 - shift0));
        const float scores_v32_1 = exp2f((scores_7_1 - shift0));
        const float scores_v32_2 = exp2f((scores_7_2 - shift1));
        const float scores_v32_3 = exp2f((scores_7_3 - shift1));
        scores_7_0 = scores_v32_0;
        scores_7_1 = scores_v32_1;
        scores_7_2 = scores_v32_2;
        scores_7_3 = scores_v32_3;
        row_sum_0 = ((((((((((((((((row_sum_0 * shrink0) + scores_0_0) + scores_0_1) + scores_1_0) + scores_1_1) + scores_2_0) + scores_2_1) + scores_3_0) + scores_3_1) + scores_4_0) + scores_4_1) + scores_5_0) + scores_5_1) + scores_6_0) + scores_6_1) + scores_7_0) + scores_7_1;
        row_sum_1 = ((((((((((((((((row_sum_1 * shrink1) + scores_0_2) + scores_0_3) + scores_1_2) + scores_1_3) + scores_2_2) + scores_2_3) + scores_3_2) + scores_3_3) + scores_4_2) + scores_4_3) + scores_5_2) + scores_5_3) + scores_6_2) + scores_6_3) + scores_7_2) + scores_7_3;
        out_acc_0_0 = out_acc_0_0 * shrink0;
        out_acc_0_1 = out_acc_0_1 * shrink0;
        out_acc_0_2 = out_acc_0_2 * shrink1;
        out_acc_0_3 = out_acc_0_3 * shrink1;
        out_acc_1_0 = out_acc_1_0 * shrink0;
        out_acc_1_1 = out_acc_1_1 * shrink0;
        out_acc_1_2 = out_acc_1_2 * shrink1;
        out_acc_1_3 = out_acc_1_3 * shrink1;
        out_acc_2_0 = out_acc_2_0 * shrink0;
        out_acc_2_1 = out_acc_2_1 * shrink0;
        out_acc_2_2 = out_acc_2_2 * shrink1;
        out_acc_2_3 = out_acc_2_3 * shrink1;
        out_acc_3_0 = out_acc_3_0 * shrink0;
        out_acc_3_1 = out_acc_3_1 * shrink0;
        out_acc_3_2 = out_acc_3_2 * shrink1;
        out_acc_3_3 = out_acc_3_3 * shrink1;
        out_acc_4_0 = out_acc_4_0 * shrink0;
        out_acc_4_1 = out_acc_4_1 * shrink0;
        out_acc_4_2 = out_acc_4_2 * shrink1;
        out_acc_4_3 = out_acc_4_3 * shrink1;
        out_acc_5_0 = out_acc_5_0 * shrink0;
        out_acc_5_1 = out_acc_5_1 * shrink0;
        out_acc_5_2 = out_acc_5_2 * shrink1;
        out_acc_5_3 = out_acc_5_3 * shrink1;
        out_acc_6_0 = out_acc_6_0 * shrink0;
        out_acc_6_1 = out_acc_6_1 * shrink0;
        out_acc_6_2 = out_acc_6_2 * shrink1;
        out_acc_6_3 = out_acc_6_3 * shrink1;
        out_acc_7_0 = out_acc_7_0 * shrink0;
        out_acc_7_1 = out_acc_7_1 * shrink0;
        out_acc_7_2 = out_acc_7_2 * shrink1;
        out_acc_7_3 = out_acc_7_3 * shrink1;
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if ((j + 1) < min(((s + 63) >> 6), ((m0 + 127) >> 6))) {
            const int t106 = tid >> 3;
            const int t107 = (tid & 7) * 8;
            const int t108 = (t106 * 64) + t107;
            const int t109 = ((j + 1) * 64) + t106;
            emmy_copy_async<16>(emmy_shared(v_tile) + ((turn2_next * 4096) + (t108 ^ ((t108 >> 3) & 56))) * 2u, v_head + ((t109 * 64) + t107), t109 < s);
            const int t110 = tid + 128;
            const int t111 = t110 >> 3;
            const int t112 = (t110 & 7) * 8;
            const int t113 = (t111 * 64) + t112;
            const int t114 = ((j + 1) * 64) + t111;
            emmy_copy_async<16>(emmy_shared(v_tile) + ((turn2_next * 4096) + (t113 ^ ((t113 >> 3) & 56))) * 2u, v_head + ((t114 * 64) + t112), t114 < s);
            const int t115 = tid + 256;
            const int t116 = t115 >> 3;
            const int t117 = (t115 & 7) * 8;
            const int t118 = (t116 * 64) + t117;
            const int t119 = ((j + 1) * 64) + t116;
            emmy_copy_async<16>(emmy_shared(v_tile) + ((turn2_next * 4096) + (t118 ^ ((t118 >> 3) & 56))) * 2u, v_head + ((t119 * 64) + t117), t119 < s);
            const int t120 = tid + 384;
            const int t121 = t120 >> 3;
            const int t122 = (t120 & 7) * 8;
            const int t123 = (t121 * 64) + t122;
            const int t124 = ((j + 1) * 64) + t121;
            emmy_copy_async<16>(emmy_shared(v_tile) + ((turn2_next * 4096) + (t123 ^ ((t123 >> 3) & 56))) * 2u, v_head + ((t124 * 64) + t122), t124 < s);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        unsigned p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3;
        unsigned p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3;
        p_frag_0_p0 = emmy_pack_f16(scores_0_0, scores_0_1);
        p_frag_0_p1 = emmy_pack_f16(scores_0_2, scores_0_3);
        p_frag_0_p2 = emmy_pack_f16(scores_1_0, scores_1_1);
        p_frag_0_p3 = emmy_pack_f16(scores_1_2, scores_1_3);
        p_frag_1_p0 = emmy_pack_f16(scores_2_0, scores_2_1);
        p_frag_1_p1 = emmy_pack_f16(scores_2_2, scores_2_3);
        p_frag_1_p2 = emmy_pack_f16(scores_3_0, scores_3_1);
        p_frag_1_p3 = emmy_pack_f16(scores_3_2, scores_3_3);
        p_frag_2_p0 = emmy_pack_f16(scores_4_0, scores_4_1);
        p_frag_2_p1 = emmy_pack_f16(scores_4_2, scores_4_3);
        p_frag_2_p2 = emmy_pack_f16(scores_5_0, scores_5_1);
        p_frag_2_p3 = emmy_pack_f16(scores_5_2, scores_5_3);
        p_frag_3_p0 = emmy_pack_f16(scores_6_0, scores_6_1);
        p_frag_3_p1 = emmy_pack_f16(scores_6_2, scores_6_3);
        p_frag_3_p2 = emmy_pack_f16(scores_7_0, scores_7_1);
        p_frag_3_p3 = emmy_pack_f16(scores_7_2, scores_7_3);
        unsigned v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1;
        const int t125 = (((((lane >> 3) & 1) * 8) + (lane & 7)) * 64) + ((lane >> 4) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t125 ^ ((t125 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_0_0, out_acc_0_1, out_acc_0_2, out_acc_0_3, p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_1_0, out_acc_1_1, out_acc_1_2, out_acc_1_3, p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, v_frag_1_p0, v_frag_1_p1);
        const int t126 = (((((lane >> 3) & 1) * 8) + (lane & 7)) * 64) + (((lane >> 4) + 2) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t126 ^ ((t126 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_2_0, out_acc_2_1, out_acc_2_2, out_acc_2_3, p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_3_0, out_acc_3_1, out_acc_3_2, out_acc_3_3, p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, v_frag_1_p0, v_frag_1_p1);
        const int t127 = (((((lane >> 3) & 1) * 8) + (lane & 7)) * 64) + (((lane >> 4) + 4) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t127 ^ ((t127 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_4_0, out_acc_4_1, out_acc_4_2, out_acc_4_3, p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_5_0, out_acc_5_1, out_acc_5_2, out_acc_5_3, p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, v_frag_1_p0, v_frag_1_p1);
        const int t128 = (((((lane >> 3) & 1) * 8) + (lane & 7)) * 64) + (((lane >> 4) + 6) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t128 ^ ((t128 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_6_0, out_acc_6_1, out_acc_6_2, out_acc_6_3, p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_7_0, out_acc_7_1, out_acc_7_2, out_acc_7_3, p_frag_0_p0, p_frag_0_p1, p_frag_0_p2, p_frag_0_p3, v_frag_1_p0, v_frag_1_p1);
        const int t129 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 16) * 64) + ((lane >> 4) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t129 ^ ((t129 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_0_0, out_acc_0_1, out_acc_0_2, out_acc_0_3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_1_0, out_acc_1_1, out_acc_1_2, out_acc_1_3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3, v_frag_1_p0, v_frag_1_p1);
        const int t130 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 16) * 64) + (((lane >> 4) + 2) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t130 ^ ((t130 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_2_0, out_acc_2_1, out_acc_2_2, out_acc_2_3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_3_0, out_acc_3_1, out_acc_3_2, out_acc_3_3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3, v_frag_1_p0, v_frag_1_p1);
        const int t131 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 16) * 64) + (((lane >> 4) + 4) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t131 ^ ((t131 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_4_0, out_acc_4_1, out_acc_4_2, out_acc_4_3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_5_0, out_acc_5_1, out_acc_5_2, out_acc_5_3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3, v_frag_1_p0, v_frag_1_p1);
        const int t132 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 16) * 64) + (((lane >> 4) + 6) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t132 ^ ((t132 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_6_0, out_acc_6_1, out_acc_6_2, out_acc_6_3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_7_0, out_acc_7_1, out_acc_7_2, out_acc_7_3, p_frag_1_p0, p_frag_1_p1, p_frag_1_p2, p_frag_1_p3, v_frag_1_p0, v_frag_1_p1);
        const int t133 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 32) * 64) + ((lane >> 4) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t133 ^ ((t133 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_0_0, out_acc_0_1, out_acc_0_2, out_acc_0_3, p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_1_0, out_acc_1_1, out_acc_1_2, out_acc_1_3, p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, v_frag_1_p0, v_frag_1_p1);
        const int t134 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 32) * 64) + (((lane >> 4) + 2) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t134 ^ ((t134 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_2_0, out_acc_2_1, out_acc_2_2, out_acc_2_3, p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_3_0, out_acc_3_1, out_acc_3_2, out_acc_3_3, p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, v_frag_1_p0, v_frag_1_p1);
        const int t135 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 32) * 64) + (((lane >> 4) + 4) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t135 ^ ((t135 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_4_0, out_acc_4_1, out_acc_4_2, out_acc_4_3, p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_5_0, out_acc_5_1, out_acc_5_2, out_acc_5_3, p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, v_frag_1_p0, v_frag_1_p1);
        const int t136 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 32) * 64) + (((lane >> 4) + 6) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t136 ^ ((t136 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_6_0, out_acc_6_1, out_acc_6_2, out_acc_6_3, p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_7_0, out_acc_7_1, out_acc_7_2, out_acc_7_3, p_frag_2_p0, p_frag_2_p1, p_frag_2_p2, p_frag_2_p3, v_frag_1_p0, v_frag_1_p1);
        const int t137 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 48) * 64) + ((lane >> 4) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t137 ^ ((t137 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_0_0, out_acc_0_1, out_acc_0_2, out_acc_0_3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_1_0, out_acc_1_1, out_acc_1_2, out_acc_1_3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3, v_frag_1_p0, v_frag_1_p1);
        const int t138 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 48) * 64) + (((lane >> 4) + 2) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t138 ^ ((t138 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_2_0, out_acc_2_1, out_acc_2_2, out_acc_2_3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_3_0, out_acc_3_1, out_acc_3_2, out_acc_3_3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3, v_frag_1_p0, v_frag_1_p1);
        const int t139 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 48) * 64) + (((lane >> 4) + 4) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t139 ^ ((t139 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_4_0, out_acc_4_1, out_acc_4_2, out_acc_4_3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_5_0, out_acc_5_1, out_acc_5_2, out_acc_5_3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3, v_frag_1_p0, v_frag_1_p1);
        const int t140 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 48) * 64) + (((lane >> 4) + 6) * 8);
        emmy_ldmatrix_x4_trans(v_frag_0_p0, v_frag_0_p1, v_frag_1_p0, v_frag_1_p1, emmy_shared(v_tile) + ((turn2_0 * 4096) + (t140 ^ ((t140 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(out_acc_6_0, out_acc_6_1, out_acc_6_2, out_acc_6_3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3, v_frag_0_p0, v_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(out_acc_7_0, out_acc_7_1, out_acc_7_2, out_acc_7_3, p_frag_3_p0, p_frag_3_p1, p_frag_3_p2, p_frag_3_p3, v_frag_1_p0, v_frag_1_p1);
        turn2_0 = turn2_next;
    }
    const float other_c5 = __shfl_xor_sync(0xffffffffu, row_sum_0, 2);
    row_sum_0 = row_sum_0 + other_c5;
    const float other_c6 = __shfl_xor_sync(0xffffffffu, row_sum_0, 1);
    row_sum_0 = row_sum_0 + other_c6;
    const float other_c7 = __shfl_xor_sync(0xffffffffu, row_sum_1, 2);
    row_sum_1 = row_sum_1 + other_c7;
    const float other_c8 = __shfl_xor_sync(0xffffffffu, row_sum_1, 1);
    row_sum_1 = row_sum_1 + other_c8;
    if ((m0 + (row0 + (lane >> 2))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + (lane >> 2)) * 64) + ((lane & 3) * 2))) = vec<__half, 2>{{__float2half_rn((out_acc_0_0 / row_sum_0)), __float2half_rn((out_acc_0_1 / row_sum_0))}};
    }
    if ((m0 + (row0 + ((lane >> 2) + 8))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + ((lane >> 2) + 8)) * 64) + ((lane & 3) * 2))) = vec<__half, 2>{{__float2half_rn((out_acc_0_2 / row_sum_1)), __float2half_rn((out_acc_0_3 / row_sum_1))}};
    }
    if ((m0 + (row0 + (lane >> 2))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + (lane >> 2)) * 64) + (((lane & 3) * 2) + 8))) = vec<__half, 2>{{__float2half_rn((out_acc_1_0 / row_sum_0)), __float2half_rn((out_acc_1_1 / row_sum_0))}};
    }
    if ((m0 + (row0 + ((lane >> 2) + 8))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + ((lane >> 2) + 8)) * 64) + (((lane & 3) * 2) + 8))) = vec<__half, 2>{{__float2half_rn((out_acc_1_2 / row_sum_1)), __float2half_rn((out_acc_1_3 / row_sum_1))}};
    }
    if ((m0 + (row0 + (lane >> 2))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + (lane >> 2)) * 64) + (((lane & 3) * 2) + 16))) = vec<__half, 2>{{__float2half_rn((out_acc_2_0 / row_sum_0)), __float2half_rn((out_acc_2_1 / row_sum_0))}};
    }
    if ((m0 + (row0 + ((lane >> 2) + 8))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + ((lane >> 2) + 8)) * 64) + (((lane & 3) * 2) + 16))) = vec<__half, 2>{{__float2half_rn((out_acc_2_2 / row_sum_1)), __float2half_rn((out_acc_2_3 / row_sum_1))}};
    }
    if ((m0 + (row0 + (lane >> 2))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + (lane >> 2)) * 64) + (((lane & 3) * 2) + 24))) = vec<__half, 2>{{__float2half_rn((out_acc_3_0 / row_sum_0)), __float2half_rn((out_acc_3_1 / row_sum_0))}};
    }
    if ((m0 + (row0 + ((lane >> 2) + 8))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + ((lane >> 2) + 8)) * 64) + (((lane & 3) * 2) + 24))) = vec<__half, 2>{{__float2half_rn((out_acc_3_2 / row_sum_1)), __float2half_rn((out_acc_3_3 / row_sum_1))}};
    }
    if ((m0 + (row0 + (lane >> 2))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + (lane >> 2)) * 64) + (((lane & 3) * 2) + 32))) = vec<__half, 2>{{__float2half_rn((out_acc_4_0 / row_sum_0)), __float2half_rn((out_acc_4_1 / row_sum_0))}};
    }
    if ((m0 + (row0 + ((lane >> 2) + 8))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + ((lane >> 2) + 8)) * 64) + (((lane & 3) * 2) + 32))) = vec<__half, 2>{{__float2half_rn((out_acc_4_2 / row_sum_1)), __float2half_rn((out_acc_4_3 / row_sum_1))}};
    }
    if ((m0 + (row0 + (lane >> 2))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + (lane >> 2)) * 64) + (((lane & 3) * 2) + 40))) = vec<__half, 2>{{__float2half_rn((out_acc_5_0 / row_sum_0)), __float2half_rn((out_acc_5_1 / row_sum_0))}};
    }
    if ((m0 + (row0 + ((lane >> 2) + 8))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + ((lane >> 2) + 8)) * 64) + (((lane & 3) * 2) + 40))) = vec<__half, 2>{{__float2half_rn((out_acc_5_2 / row_sum_1)), __float2half_rn((out_acc_5_3 / row_sum_1))}};
    }
    if ((m0 + (row0 + (lane >> 2))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + (lane >> 2)) * 64) + (((lane & 3) * 2) + 48))) = vec<__half, 2>{{__float2half_rn((out_acc_6_0 / row_sum_0)), __float2half_rn((out_acc_6_1 / row_sum_0))}};
    }
    if ((m0 + (row0 + ((lane >> 2) + 8))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + ((lane >> 2) + 8)) * 64) + (((lane & 3) * 2) + 48))) = vec<__half, 2>{{__float2half_rn((out_acc_6_2 / row_sum_1)), __float2half_rn((out_acc_6_3 / row_sum_1))}};
    }
    if ((m0 + (row0 + (lane >> 2))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + (lane >> 2)) * 64) + (((lane & 3) * 2) + 56))) = vec<__half, 2>{{__float2half_rn((out_acc_7_0 / row_sum_0)), __float2half_rn((out_acc_7_1 / row_sum_0))}};
    }
    if ((m0 + (row0 + ((lane >> 2) + 8))) < s) {
        *reinterpret_cast<vec<__half, 2>*>(out_block + (((row0 + ((lane >> 2) + 8)) * 64) + (((lane & 3) * 2) + 56))) = vec<__half, 2>{{__float2half_rn((out_acc_7_2 / row_sum_1)), __float2half_rn((out_acc_7_3 / row_sum_1))}};
    }
}
