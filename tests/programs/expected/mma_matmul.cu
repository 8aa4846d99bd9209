#include <cuda_fp16.h>
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
static __device__ __forceinline__ void emmy_ldmatrix_x4_trans(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(from) : "memory");
}
static __device__ __forceinline__ void emmy_mma_m16n8k16_f16_f32(
    float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T v[N];
};
extern "C" __global__ void __launch_bounds__(128) k_mma_matmul(
    const __half* __restrict__ a,
    const __half* __restrict__ b,
    float* __restrict__ c,
    const int m) {
    __shared__ __align__(128) __half a_tile[6144];
    __shared__ __align__(128) __half b_tile[6144];
    const int bx = blockIdx.x;
    const int by = blockIdx.y;
    const int tid = threadIdx.x;
    const int m0 = by * 64;
    const int n0 = bx * 64;
    const int lane = tid & 31;
    const int warp_m = ((tid >> 5) & 1) * 32;
    const int warp_n = (tid >> 6) * 32;
    const __half* const a_block = a + ((long long)m0 * 80LL);
    const __half* const b_block = b + (long long)n0;
    float* const c_block = c + ((long long)m0 * 72LL);
    float acc_0_0_0 = 0.0f, acc_0_0_1 = 0.0f, acc_0_0_2 = 0.0f, acc_0_0_3 = 0.0f, acc_0_1_0 = 0.0f, acc_0_1_1 = 0.0f, acc_0_1_2 = 0.0f, acc_0_1_3 = 0.0f;
    float acc_0_2_0 = 0.0f, acc_0_2_1 = 0.0f, acc_0_2_2 = 0.0f, acc_0_2_3 = 0.0f, acc_0_3_0 = 0.0f, acc_0_3_1 = 0.0f, acc_0_3_2 = 0.0f, acc_0_3_3 = 0.0f;
    float acc_1_0_0 = 0.0f, acc_1_0_1 = 0.0f, acc_1_0_2 = 0.0f, acc_1_0_3 = 0.0f, acc_1_1_0 = 0.0f, acc_1_1_1 = 0.0f, acc_1_1_2 = 0.0f, acc_1_1_3 = 0.0f;
    float acc_1_2_0 = 0.0f, acc_1_2_1 = 0.0f, acc_1_2_2 = 0.0f, acc_1_2_3 = 0.0f, acc_1_3_0 = 0.0f, acc_1_3_1 = 0.0f, acc_1_3_2 = 0.0f, acc_1_3_3 = 0.0f;
    const int t0 = tid >> 2;
    const int t1 = (tid & 3) * 8;
    const int t2 = (t0 * 32) + t1;
    emmy_copy_async<16>(emmy_shared(a_tile) + (t2 ^ ((t2 >> 3) & 24)) * 2u, a_block + ((t0 * 80) + t1), ((m0 + t0) < m) && (t1 < 80));
    const int t3 = tid + 128;
    const int t4 = t3 >> 2;
    const int t5 = (t3 & 3) * 8;
    const int t6 = (t4 * 32) + t5;
    emmy_copy_async<16>(emmy_shared(a_tile) + (t6 ^ ((t6 >> 3) & 24)) * 2u, a_block + ((t4 * 80) + t5), ((m0 + t4) < m) && (t5 < 80));
    const int t7 = tid >> 3;
    const int t8 = (tid & 7) * 8;
    const int t9 = (t7 * 64) + t8;
    emmy_copy_async<16>(emmy_shared(b_tile) + (t9 ^ ((t9 >> 3) & 56)) * 2u, b_block + ((t7 * 72) + t8), (t7 < 80) && ((n0 + t8) < 72));
    const int t10 = tid + 128;
    const int t11 = t10 >> 3;
    const int t12 = (t10 & 7) * 8;
    const int t13 = (t11 * 64) + t12;
    emmy_copy_async<16>(emmy_shared(b_tile) + (t13 ^ ((t13 >> 3) & 56)) * 2u, b_block + ((t11 * 72) + t12), (t11 < 80) && ((n0 + t12) < 72));
    asm volatile("cp.async.commit_group;" ::: "memory");
    const int t14 = tid >> 2;
    const int t15 = (tid & 3) * 8;
    const int t16 = (t14 * 32) + t15;
    const int t17 = t15 + 32;
    emmy_copy_async<16>(emmy_shared(a_tile) + ((t16 ^ ((t16 >> 3) & 24)) + 2048) * 2u, a_block + ((t14 * 80) + t17), ((m0 + t14) < m) && (t17 < 80));
    const int t18 = tid + 128;
    const int t19 = t18 >> 2;
    const int t20 = (t18 & 3) * 8;
    const int t21 = (t19 * 32) + t20;
    const int t22 = t20 + 32;
    emmy_copy_async<16>(emmy_shared(a_tile) + ((t21 ^ ((t21 >> 3) & 24)) + 2048) * 2u, a_block + ((t19 * 80) + t22), ((m0 + t19) < m) && (t22 < 80));
    const int t23 = tid >> 3;
    const int t24 = (tid & 7) * 8;
    const int t25 = (t23 * 64) + t24;
    const int t26 = t23 + 32;
    emmy_copy_async<16>(emmy_shared(b_tile) + ((t25 ^ ((t25 >> 3) & 56)) + 2048) * 2u, b_block + ((t26 * 72) + t24), (t26 < 80) && ((n0 + t24) < 72));
    const int t27 = tid + 128;
    const int t28 = t27 >> 3;
    const int t29 = (t27 & 7) * 8;
    const int t30 = (t28 * 64) + t29;
    const int t31 = t28 + 32;
    emmy_copy_async<16>(emmy_shared(b_tile) + ((t30 ^ ((t30 >> 3) & 56)) + 2048) * 2u, b_block + ((t31 * 72) + t29), (t31 < 80) && ((n0 + t29) < 72));
    asm volatile("cp.async.commit_group;" ::: "memory");
    int turn3_0 = 0;
    for (int step = 0; step < 3; step += 1) {
        const int turn3_next = (turn3_0 == 2) ? 0 : (turn3_0 + 1);
        const int turn3_before = (turn3_0 == 0) ? 2 : (turn3_0 - 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if ((step + 2) < 3) {
            const int t32 = tid >> 2;
            const int t33 = (tid & 3) * 8;
            const int t34 = (t32 * 32) + t33;
            const int t35 = ((step + 2) * 32) + t33;
            emmy_copy_async<16>(emmy_shared(a_tile) + ((turn3_before * 2048) + (t34 ^ ((t34 >> 3) & 24))) * 2u, a_block + ((t32 * 80) + t35), ((m0 + t32) < m) && (t35 < 80));
            const int t36 = tid + 128;
            const int t37 = t36 >> 2;
            const int t38 = (t36 & 3) * 8;
            const int t39 = (t37 * 32) + t38;
            const int t40 = ((step + 2) * 32) + t38;
            emmy_copy_async<16>(emmy_shared(a_tile) + ((turn3_before * 2048) + (t39 ^ ((t39 >> 3) & 24))) * 2u, a_block + ((t37 * 80) + t40), ((m0 + t37) < m) && (t40 < 80));
            const int t41 = tid >> 3;
            const int t42 = (tid & 7) * 8;
            const int t43 = (t41 * 64) + t42;
            const int t44 = ((step + 2) * 32) + t41;
            emmy_copy_async<16>(emmy_shared(b_tile) + ((turn3_before * 2048) + (t43 ^ ((t43 >> 3) & 56))) * 2u, b_block + ((t44 * 72) + t42), (t44 < 80) && ((n0 + t42) < 72));
            const int t45 = tid + 128;
            const int t46 = t45 >> 3;
            const int t47 = (t45 & 7) * 8;
            const int t48 = (t46 * 64) + t47;
            const int t49 = ((step + 2) * 32) + t46;
            emmy_copy_async<16>(emmy_shared(b_tile) + ((turn3_before * 2048) + (t48 ^ ((t48 >> 3) & 56))) * 2u, b_block + ((t49 * 72) + t47), (t49 < 80) && ((n0 + t47) < 72));
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        unsigned a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3;
        unsigned b_frag_0_p0, b_frag_0_p1, b_frag_1_p0, b_frag_1_p1, b_frag_2_p0, b_frag_2_p1, b_frag_3_p0, b_frag_3_p1;
        const int t50 = lane >> 3;
        const int t51 = ((warp_m + (((t50 & 1) * 8) + (lane & 7))) * 32) + ((t50 >> 1) * 8);
        emmy_ldmatrix_x4(a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, emmy_shared(a_tile) + ((turn3_0 * 2048) + (t51 ^ ((t51 >> 3) & 24))) * 2u);
        const int t52 = lane >> 3;
        const int t53 = (((warp_m + 16) + (((t52 & 1) * 8) + (lane & 7))) * 32) + ((t52 >> 1) * 8);
        emmy_ldmatrix_x4(a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, emmy_shared(a_tile) + ((turn3_0 * 2048) + (t53 ^ ((t53 >> 3) & 24))) * 2u);
        const int t54 = (((((lane >> 3) & 1) * 8) + (lane & 7)) * 64) + (warp_n + ((lane >> 4) * 8));
        emmy_ldmatrix_x4_trans(b_frag_0_p0, b_frag_0_p1, b_frag_1_p0, b_frag_1_p1, emmy_shared(b_tile) + ((turn3_0 * 2048) + (t54 ^ ((t54 >> 3) & 56))) * 2u);
        const int t55 = (((((lane >> 3) & 1) * 8) + (lane & 7)) * 64) + (warp_n + (((lane >> 4) + 2) * 8));
        emmy_ldmatrix_x4_trans(b_frag_2_p0, b_frag_2_p1, b_frag_3_p0, b_frag_3_p1, emmy_shared(b_tile) + ((turn3_0 * 2048) + (t55 ^ ((t55 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(acc_0_0_0, acc_0_0_1, acc_0_0_2, acc_0_0_3, a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, b_frag_0_p0, b_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(acc_0_1_0, acc_0_1_1, acc_0_1_2, acc_0_1_3, a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, b_frag_1_p0, b_frag_1_p1);
        emmy_mma_m16n8k16_f16_f32(acc_0_2_0, acc_0_2_1, acc_0_2_2, acc_0_2_3, a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, b_frag_2_p0, b_frag_2_p1);
        emmy_mma_m16n8k16_f16_f32(acc_0_3_0, acc_0_3_1, acc_0_3_2, acc_0_3_3, a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, b_frag_3_p0, b_frag_3_p1);
        emmy_mma_m16n8k16_f16_f32(acc_1_0_0, acc_1_0_1, acc_1_0_2, acc_1_0_3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, b_frag_0_p0, b_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(acc_1_1_0, acc_1_1_1, acc_1_1_2, acc_1_1_3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, b_frag_1_p0, b_frag_1_p1);
        emmy_mma_m16n8k16_f16_f32(acc_1_2_0, acc_1_2_1, acc_1_2_2, acc_1_2_3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, b_frag_2_p0, b_frag_2_p1);
        emmy_mma_m16n8k16_f16_f32(acc_1_3_0, acc_1_3_1, acc_1_3_2, acc_1_3_3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, b_frag_3_p0, b_frag_3_p1);
        const int t56 = lane >> 3;
        const int t57 = ((warp_m + (((t56 & 1) * 8) + (lane & 7))) * 32) + (((t56 >> 1) * 8) + 16);
        emmy_ldmatrix_x4(a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, emmy_shared(a_tile) + ((turn3_0 * 2048) + (t57 ^ ((t57 >> 3) & 24))) * 2u);
        const int t58 = lane >> 3;
        const int t59 = (((warp_m + 16) + (((t58 & 1) * 8) + (lane & 7))) * 32) + (((t58 >> 1) * 8) + 16);
        emmy_ldmatrix_x4(a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, emmy_shared(a_tile) + ((turn3_0 * 2048) + (t59 ^ ((t59 >> 3) & 24))) * 2u);
        const int t60 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 16) * 64) + (warp_n + ((lane >> 4) * 8));
        emmy_ldmatrix_x4_trans(b_frag_0_p0, b_frag_0_p1, b_frag_1_p0, b_frag_1_p1, emmy_shared(b_tile) + ((turn3_0 * 2048) + (t60 ^ ((t60 >> 3) & 56))) * 2u);
        const int t61 = ((((((lane >> 3) & 1) * 8) + (lane & 7)) + 16) * 64) + (warp_n + (((lane >> 4) + 2) * 8));
        emmy_ldmatrix_x4_trans(b_frag_2_p0, b_frag_2_p1, b_frag_3_p0, b_frag_3_p1, emmy_shared(b_tile) + ((turn3_0 * 2048) + (t61 ^ ((t61 >> 3) & 56))) * 2u);
        emmy_mma_m16n8k16_f16_f32(acc_0_0_0, acc_0_0_1, acc_0_0_2, acc_0_0_3, a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, b_frag_0_p0, b_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(acc_0_1_0, acc_0_1_1, acc_0_1_2, acc_0_1_3, a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, b_frag_1_p0, b_frag_1_p1);
        emmy_mma_m16n8k16_f16_f32(acc_0_2_0, acc_0_2_1, acc_0_2_2, acc_0_2_3, a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, b_frag_2_p0, b_frag_2_p1);
        emmy_mma_m16n8k16_f16_f32(acc_0_3_0, acc_0_3_1, acc_0_3_2, acc_0_3_3, a_frag_0_p0, a_frag_0_p1, a_frag_0_p2, a_frag_0_p3, b_frag_3_p0, b_frag_3_p1);
        emmy_mma_m16n8k16_f16_f32(acc_1_0_0, acc_1_0_1, acc_1_0_2, acc_1_0_3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, b_frag_0_p0, b_frag_0_p1);
        emmy_mma_m16n8k16_f16_f32(acc_1_1_0, acc_1_1_1, acc_1_1_2, acc_1_1_3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, b_frag_1_p0, b_frag_1_p1);
        emmy_mma_m16n8k16_f16_f32(acc_1_2_0, acc_1_2_1, acc_1_2_2, acc_1_2_3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, b_frag_2_p0, b_frag_2_p1);
        emmy_mma_m16n8k16_f16_f32(acc_1_3_0, acc_1_3_1, acc_1_3_2, acc_1_3_3, a_frag_1_p0, a_frag_1_p1, a_frag_1_p2, a_frag_1_p3, b_frag_3_p0, b_frag_3_p1);
        turn3_0 = turn3_next;
    }
    if (((m0 + (warp_m + (lane >> 2))) < m) && ((n0 + (warp_n + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + (((warp_m + (lane >> 2)) * 72) + (n0 + (warp_n + ((lane & 3) * 2))))) = vec<float, 2>{{acc_0_0_0, acc_0_0_1}};
    }
    if (((m0 + (warp_m + ((lane >> 2) + 8))) < m) && ((n0 + (warp_n + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + (((warp_m + ((lane >> 2) + 8)) * 72) + (n0 + (warp_n + ((lane & 3) * 2))))) = vec<float, 2>{{acc_0_0_2, acc_0_0_3}};
    }
    if (((m0 + (warp_m + (lane >> 2))) < m) && ((n0 + ((warp_n + 8) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + (((warp_m + (lane >> 2)) * 72) + (n0 + ((warp_n + 8) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_0_1_0, acc_0_1_1}};
    }
    if (((m0 + (warp_m + ((lane >> 2) + 8))) < m) && ((n0 + ((warp_n + 8) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + (((warp_m + ((lane >> 2) + 8)) * 72) + (n0 + ((warp_n + 8) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_0_1_2, acc_0_1_3}};
    }
    if (((m0 + (warp_m + (lane >> 2))) < m) && ((n0 + ((warp_n + 16) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + (((warp_m + (lane >> 2)) * 72) + (n0 + ((warp_n + 16) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_0_2_0, acc_0_2_1}};
    }
    if (((m0 + (warp_m + ((lane >> 2) + 8))) < m) && ((n0 + ((warp_n + 16) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + (((warp_m + ((lane >> 2) + 8)) * 72) + (n0 + ((warp_n + 16) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_0_2_2, acc_0_2_3}};
    }
    if (((m0 + (warp_m + (lane >> 2))) < m) && ((n0 + ((warp_n + 24) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + (((warp_m + (lane >> 2)) * 72) + (n0 + ((warp_n + 24) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_0_3_0, acc_0_3_1}};
    }
    if (((m0 + (warp_m + ((lane >> 2) + 8))) < m) && ((n0 + ((warp_n + 24) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + (((warp_m + ((lane >> 2) + 8)) * 72) + (n0 + ((warp_n + 24) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_0_3_2, acc_0_3_3}};
    }
    if (((m0 + ((warp_m + 16) + (lane >> 2))) < m) && ((n0 + (warp_n + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + ((((warp_m + 16) + (lane >> 2)) * 72) + (n0 + (warp_n + ((lane & 3) * 2))))) = vec<float, 2>{{acc_1_0_0, acc_1_0_1}};
    }
    if (((m0 + ((warp_m + 16) + ((lane >> 2) + 8))) < m) && ((n0 + (warp_n + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + ((((warp_m + 16) + ((lane >> 2) + 8)) * 72) + (n0 + (warp_n + ((lane & 3) * 2))))) = vec<float, 2>{{acc_1_0_2, acc_1_0_3}};
    }
    if (((m0 + ((warp_m + 16) + (lane >> 2))) < m) && ((n0 + ((warp_n + 8) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + ((((warp_m + 16) + (lane >> 2)) * 72) + (n0 + ((warp_n + 8) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_1_1_0, acc_1_1_1}};
    }
    if (((m0 + ((warp_m + 16) + ((lane >> 2) + 8))) < m) && ((n0 + ((warp_n + 8) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + ((((warp_m + 16) + ((lane >> 2) + 8)) * 72) + (n0 + ((warp_n + 8) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_1_1_2, acc_1_1_3}};
    }
    if (((m0 + ((warp_m + 16) + (lane >> 2))) < m) && ((n0 + ((warp_n + 16) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + ((((warp_m + 16) + (lane >> 2)) * 72) + (n0 + ((warp_n + 16) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_1_2_0, acc_1_2_1}};
    }
    if (((m0 + ((warp_m + 16) + ((lane >> 2) + 8))) < m) && ((n0 + ((warp_n + 16) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + ((((warp_m + 16) + ((lane >> 2) + 8)) * 72) + (n0 + ((warp_n + 16) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_1_2_2, acc_1_2_3}};
    }
    if (((m0 + ((warp_m + 16) + (lane >> 2))) < m) && ((n0 + ((warp_n + 24) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + ((((warp_m + 16) + (lane >> 2)) * 72) + (n0 + ((warp_n + 24) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_1_3_0, acc_1_3_1}};
    }
    if (((m0 + ((warp_m + 16) + ((lane >> 2) + 8))) < m) && ((n0 + ((warp_n + 24) + ((lane & 3) * 2))) < 72)) {
        *reinterpret_cast<vec<float, 2>*>(c_block + ((((warp_m + 16) + ((lane >> 2) + 8)) * 72) + (n0 + ((warp_n + 24) + ((lane & 3) * 2))))) = vec<float, 2>{{acc_1_3_2, acc_1_3_3}};
    }
}
