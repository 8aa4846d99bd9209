#include <cuda_fp16.h>
static __device__ __forceinline__ unsigned emmy_shared(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
static __device__ __forceinline__ void emmy_barrier_init(long long* barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(emmy_shared(barrier)), "r"(count) : "memory");
}
static __device__ __forceinline__ int emmy_floordiv_i32(int a, int b) { int q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0))); }
static __device__ __forceinline__ void emmy_barrier_wait(long long* barrier, unsigned parity) {
    const unsigned at = emmy_shared(barrier);
    unsigned done = 0;
    while (!done) {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(at), "r"(parity) : "memory");
    }
}
static __device__ __forceinline__ void emmy_barrier_expect(long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(emmy_shared(barrier)), "r"(bytes) : "memory");
}
struct alignas(64) TensorMap {
    char opaque[128];
};
static __device__ __forceinline__ void emmy_tensor_copy_2d(void* to, const TensorMap& map, long long* barrier, int x0, int x1) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 ::"r"(emmy_shared(to)), "l"(&map), "r"(emmy_shared(barrier)), "r"(x0), "r"(x1) : "memory");
}
static __device__ __forceinline__ unsigned long long emmy_matrix(
    const void* start, unsigned panel, unsigned group, unsigned mode) {
    const unsigned long long address = (emmy_shared(start) & 0x3ffffu) >> 4;
    return address | (unsigned long long)(panel >> 4) << 16 | (unsigned long long)(group >> 4) << 32 |
           (unsigned long long)mode << 62;
}
static __device__ __forceinline__ void emmy_wgmma_m64n128k16_f16_f32(
    float& c0, float& c1, float& c2, float& c3, float& c4, float& c5, float& c6, float& c7, float& c8, float& c9, float& c10, float& c11, float& c12, float& c13, float& c14, float& c15, float& c16, float& c17, float& c18, float& c19, float& c20, float& c21, float& c22, float& c23, float& c24, float& c25, float& c26, float& c27, float& c28, float& c29, float& c30, float& c31, float& c32, float& c33, float& c34, float& c35, float& c36, float& c37, float& c38, float& c39, float& c40, float& c41, float& c42, float& c43, float& c44, float& c45, float& c46, float& c47, float& c48, float& c49, float& c50, float& c51, float& c52, float& c53, float& c54, float& c55, float& c56, float& c57, float& c58, float& c59, float& c60, float& c61, float& c62, float& c63, unsigned long long a, unsigned long long b, int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0;\n}"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3), "+f"(c4), "+f"(c5), "+f"(c6), "+f"(c7), "+f"(c8), "+f"(c9), "+f"(c10), "+f"(c11), "+f"(c12), "+f"(c13), "+f"(c14), "+f"(c15), "+f"(c16), "+f"(c17), "+f"(c18), "+f"(c19), "+f"(c20), "+f"(c21), "+f"(c22), "+f"(c23), "+f"(c24), "+f"(c25), "+f"(c26), "+f"(c27), "+f"(c28), "+f"(c29), "+f"(c30), "+f"(c31), "+f"(c32), "+f"(c33), "+f"(c34), "+f"(c35), "+f"(c36), "+f"(c37), "+f"(c38), "+f"(c39), "+f"(c40), "+f"(c41), "+f"(c42), "+f"(c43), "+f"(c44), "+f"(c45), "+f"(c46), "+f"(c47), "+f"(c48), "+f"(c49), "+f"(c50), "+f"(c51), "+f"(c52), "+f"(c53), "+f"(c54), "+f"(c55), "+f"(c56), "+f"(c57), "+f"(c58), "+f"(c59), "+f"(c60), "+f"(c61), "+f"(c62), "+f"(c63)
        : "l"(a), "l"(b), "r"(accumulate) : "memory");
}
static __device__ __forceinline__ void emmy_barrier_arrive(long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(emmy_shared(barrier)) : "memory");
}
template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T v[N];
};
extern "C" __global__ void __launch_bounds__(384, 1) k_wgmma_matmul(
    const __grid_constant__ TensorMap a_map,
    const __grid_constant__ TensorMap b_map,
    float* __restrict__ c,
    const int m,
    const int blocks) {
    extern __shared__ __align__(1024) unsigned char smem[];
    __half* const a_tile = reinterpret_cast<__half*>(smem + 0);
    __half* const b_tile = reinterpret_cast<__half*>(smem + 65536);
    long long* const tiles_full = reinterpret_cast<long long*>(smem + 131072);
    long long* const tiles_empty = reinterpret_cast<long long*>(smem + 131104);
    const int bx = blockIdx.x;
    const int tid = threadIdx.x;
    if (tid == 0) {
        emmy_barrier_init(tiles_full, 1);
        emmy_barrier_init(tiles_empty, 8);
        emmy_barrier_init(tiles_full + 1, 1);
        emmy_barrier_init(tiles_empty + 1, 8);
        emmy_barrier_init(tiles_full + 2, 1);
        emmy_barrier_init(tiles_empty + 2, 8);
        emmy_barrier_init(tiles_full + 3, 1);
        emmy_barrier_init(tiles_empty + 3, 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    const int t0 = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (t0 >= 0 && t0 < 4) {  // producer
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        const int t1 = emmy_floordiv_i32(((((((m + 127) >> 7) * 2) - bx) + blocks) - 1), blocks);
        for (int job = 0; job < t1; job += 1) {
            const int m0 = ((bx + (job * blocks)) >> 1) * 128;
            const int n0 = ((bx + (job * blocks)) & 1) * 128;
            for (int kt = 0; kt < 5; kt += 1) {
                const int step = (job * 5) + kt;
                if (tid == 0) {
                    emmy_barrier_wait(tiles_empty + (step & 3), ((step >> 2) & 1) ^ 1);
                    emmy_barrier_expect(tiles_full + (step & 3), 32768);
                    const int t2 = step & 3;
                    emmy_tensor_copy_2d(a_tile + (t2 * 8192), a_map, tiles_full + t2, kt * 64, m0);
                    const int t3 = step & 3;
                    emmy_tensor_copy_2d(b_tile + (t3 * 8192), b_map, tiles_full + t3, kt * 64, n0);
                }
            }
        }
    } else if (t0 >= 4 && t0 < 12) {  // consumer
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7;
        float acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15;
        float acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23;
        float acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31;
        float acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39;
        float acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47;
        float acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55;
        float acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63;
        const int t4 = emmy_floordiv_i32(((((((m + 127) >> 7) * 2) - bx) + blocks) - 1), blocks);
        for (int job = 0; job < t4; job += 1) {
            const int m0 = ((bx + (job * blocks)) >> 1) * 128;
            const int n0 = ((bx + (job * blocks)) & 1) * 128;
            for (int kt = 0; kt < 5; kt += 1) {
                const int step = (job * 5) + kt;
                emmy_barrier_wait(tiles_full + (step & 3), (step >> 2) & 1);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                const int t5 = (step & 3) * 8192;
                emmy_wgmma_m64n128k16_f16_f32(acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7, acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15, acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23, acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31, acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39, acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47, acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55, acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63, emmy_matrix(a_tile + (t5 + (((tid >> 7) - 1) * 4096)), 16, 1024, 1), emmy_matrix(b_tile + t5, 16, 1024, 1), kt != 0);
                const int t6 = (step & 3) * 8192;
                emmy_wgmma_m64n128k16_f16_f32(acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7, acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15, acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23, acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31, acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39, acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47, acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55, acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63, emmy_matrix(a_tile + ((t6 + (((tid >> 7) - 1) * 4096)) + 16), 16, 1024, 1), emmy_matrix(b_tile + (t6 + 16), 16, 1024, 1), true);
                const int t7 = (step & 3) * 8192;
                emmy_wgmma_m64n128k16_f16_f32(acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7, acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15, acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23, acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31, acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39, acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47, acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55, acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63, emmy_matrix(a_tile + ((t7 + (((tid >> 7) - 1) * 4096)) + 32), 16, 1024, 1), emmy_matrix(b_tile + (t7 + 32), 16, 1024, 1), true);
                const int t8 = (step & 3) * 8192;
                emmy_wgmma_m64n128k16_f16_f32(acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7, acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15, acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23, acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31, acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39, acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47, acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55, acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63, emmy_matrix(a_tile + ((t8 + (((tid >> 7) - 1) * 4096)) + 48), 16, 1024, 1), emmy_matrix(b_tile + (t8 + 48), 16, 1024, 1), true);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                __syncwarp();
                if ((tid & 31) == 0) {
                    emmy_barrier_arrive(tiles_empty + (step & 3));
                }
            }
            float* const c_block = c + ((long long)(m0 + (((tid >> 7) - 1) * 64)) * 136LL);
            const int t9 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t9 >> 5) * 16) + ((t9 >> 2) & 7))) < m) && ((n0 + ((t9 & 3) * 2)) < 136)) {
                const int t10 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t10 >> 5) * 16) + ((t10 >> 2) & 7)) * 136) + (n0 + ((t10 & 3) * 2)))) = vec<float, 2>{{acc_0_0, acc_0_1}};
            }
            const int t11 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t11 >> 5) * 16) + ((t11 >> 2) & 7)) + 8)) < m) && ((n0 + ((t11 & 3) * 2)) < 136)) {
                const int t12 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t12 >> 5) * 16) + ((t12 >> 2) & 7)) + 8) * 136) + (n0 + ((t12 & 3) * 2)))) = vec<float, 2>{{acc_0_2, acc_0_3}};
            }
            const int t13 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t13 >> 5) * 16) + ((t13 >> 2) & 7))) < m) && ((n0 + (((t13 & 3) * 2) + 8)) < 136)) {
                const int t14 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t14 >> 5) * 16) + ((t14 >> 2) & 7)) * 136) + (n0 + (((t14 & 3) * 2) + 8)))) = vec<float, 2>{{acc_0_4, acc_0_5}};
            }
            const int t15 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t15 >> 5) * 16) + ((t15 >> 2) & 7)) + 8)) < m) && ((n0 + (((t15 & 3) * 2) + 8)) < 136)) {
                const int t16 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t16 >> 5) * 16) + ((t16 >> 2) & 7)) + 8) * 136) + (n0 + (((t16 & 3) * 2) + 8)))) = vec<float, 2>{{acc_0_6, acc_0_7}};
            }
            const int t17 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t17 >> 5) * 16) + ((t17 >> 2) & 7))) < m) && ((n0 + (((t17 & 3) * 2) + 16)) < 136)) {
                const int t18 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t18 >> 5) * 16) + ((t18 >> 2) & 7)) * 136) + (n0 + (((t18 & 3) * 2) + 16)))) = vec<float, 2>{{acc_0_8, acc_0_9}};
            }
            const int t19 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t19 >> 5) * 16) + ((t19 >> 2) & 7)) + 8)) < m) && ((n0 + (((t19 & 3) * 2) + 16)) < 136)) {
                const int t20 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t20 >> 5) * 16) + ((t20 >> 2) & 7)) + 8) * 136) + (n0 + (((t20 & 3) * 2) + 16)))) = vec<float, 2>{{acc_0_10, acc_0_11}};
            }
            const int t21 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t21 >> 5) * 16) + ((t21 >> 2) & 7))) < m) && ((n0 + (((t21 & 3) * 2) + 24)) < 136)) {
                const int t22 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t22 >> 5) * 16) + ((t22 >> 2) & 7)) * 136) + (n0 + (((t22 & 3) * 2) + 24)))) = vec<float, 2>{{acc_0_12, acc_0_13}};
            }
            const int t23 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t23 >> 5) * 16) + ((t23 >> 2) & 7)) + 8)) < m) && ((n0 + (((t23 & 3) * 2) + 24)) < 136)) {
                const int t24 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t24 >> 5) * 16) + ((t24 >> 2) & 7)) + 8) * 136) + (n0 + (((t24 & 3) * 2) + 24)))) = vec<float, 2>{{acc_0_14, acc_0_15}};
            }
            const int t25 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t25 >> 5) * 16) + ((t25 >> 2) & 7))) < m) && ((n0 + (((t25 & 3) * 2) + 32)) < 136)) {
                const int t26 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t26 >> 5) * 16) + ((t26 >> 2) & 7)) * 136) + (n0 + (((t26 & 3) * 2) + 32)))) = vec<float, 2>{{acc_0_16, acc_0_17}};
            }
            const int t27 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t27 >> 5) * 16) + ((t27 >> 2) & 7)) + 8)) < m) && ((n0 + (((t27 & 3) * 2) + 32)) < 136)) {
                const int t28 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t28 >> 5) * 16) + ((t28 >> 2) & 7)) + 8) * 136) + (n0 + (((t28 & 3) * 2) + 32)))) = vec<float, 2>{{acc_0_18, acc_0_19}};
            }
            const int t29 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t29 >> 5) * 16) + ((t29 >> 2) & 7))) < m) && ((n0 + (((t29 & 3) * 2) + 40)) < 136)) {
                const int t30 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t30 >> 5) * 16) + ((t30 >> 2) & 7)) * 136) + (n0 + (((t30 & 3) * 2) + 40)))) = vec<float, 2>{{acc_0_20, acc_0_21}};
            }
            const int t31 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t31 >> 5) * 16) + ((t31 >> 2) & 7)) + 8)) < m) && ((n0 + (((t31 & 3) * 2) + 40)) < 136)) {
                const int t32 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t32 >> 5) * 16) + ((t32 >> 2) & 7)) + 8) * 136) + (n0 + (((t32 & 3) * 2) + 40)))) = vec<float, 2>{{acc_0_22, acc_0_23}};
            }
            const int t33 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t33 >> 5) * 16) + ((t33 >> 2) & 7))) < m) && ((n0 + (((t33 & 3) * 2) + 48)) < 136)) {
                const int t34 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t34 >> 5) * 16) + ((t34 >> 2) & 7)) * 136) + (n0 + (((t34 & 3) * 2) + 48)))) = vec<float, 2>{{acc_0_24, acc_0_25}};
            }
            const int t35 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t35 >> 5) * 16) + ((t35 >> 2) & 7)) + 8)) < m) && ((n0 + (((t35 & 3) * 2) + 48)) < 136)) {
                const int t36 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t36 >> 5) * 16) + ((t36 >> 2) & 7)) + 8) * 136) + (n0 + (((t36 & 3) * 2) + 48)))) = vec<float, 2>{{acc_0_26, acc_0_27}};
            }
            const int t37 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t37 >> 5) * 16) + ((t37 >> 2) & 7))) < m) && ((n0 + (((t37 & 3) * 2) + 56)) < 136)) {
                const int t38 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t38 >> 5) * 16) + ((t38 >> 2) & 7)) * 136) + (n0 + (((t38 & 3) * 2) + 56)))) = vec<float, 2>{{acc_0_28, acc_0_29}};
            }
            const int t39 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t39 >> 5) * 16) + ((t39 >> 2) & 7)) + 8)) < m) && ((n0 + (((t39 & 3) * 2) + 56)) < 136)) {
                const int t40 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t40 >> 5) * 16) + ((t40 >> 2) & 7)) + 8) * 136) + (n0 + (((t40 & 3) * 2) + 56)))) = vec<float, 2>{{acc_0_30, acc_0_31}};
            }
            const int t41 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t41 >> 5) * 16) + ((t41 >> 2) & 7))) < m) && ((n0 + (((t41 & 3) * 2) + 64)) < 136)) {
                const int t42 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t42 >> 5) * 16) + ((t42 >> 2) & 7)) * 136) + (n0 + (((t42 & 3) * 2) + 64)))) = vec<float, 2>{{acc_0_32, acc_0_33}};
            }
            const int t43 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t43 >> 5) * 16) + ((t43 >> 2) & 7)) + 8)) < m) && ((n0 + (((t43 & 3) * 2) + 64)) < 136)) {
                const int t44 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t44 >> 5) * 16) + ((t44 >> 2) & 7)) + 8) * 136) + (n0 + (((t44 & 3) * 2) + 64)))) = vec<float, 2>{{acc_0_34, acc_0_35}};
            }
            const int t45 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t45 >> 5) * 16) + ((t45 >> 2) & 7))) < m) && ((n0 + (((t45 & 3) * 2) + 72)) < 136)) {
                const int t46 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t46 >> 5) * 16) + ((t46 >> 2) & 7)) * 136) + (n0 + (((t46 & 3) * 2) + 72)))) = vec<float, 2>{{acc_0_36, acc_0_37}};
            }
            const int t47 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t47 >> 5) * 16) + ((t47 >> 2) & 7)) + 8)) < m) && ((n0 + (((t47 & 3) * 2) + 72)) < 136)) {
                const int t48 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t48 >> 5) * 16) + ((t48 >> 2) & 7)) + 8) * 136) + (n0 + (((t48 & 3) * 2) + 72)))) = vec<float, 2>{{acc_0_38, acc_0_39}};
            }
            const int t49 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t49 >> 5) * 16) + ((t49 >> 2) & 7))) < m) && ((n0 + (((t49 & 3) * 2) + 80)) < 136)) {
                const int t50 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t50 >> 5) * 16) + ((t50 >> 2) & 7)) * 136) + (n0 + (((t50 & 3) * 2) + 80)))) = vec<float, 2>{{acc_0_40, acc_0_41}};
            }
            const int t51 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t51 >> 5) * 16) + ((t51 >> 2) & 7)) + 8)) < m) && ((n0 + (((t51 & 3) * 2) + 80)) < 136)) {
                const int t52 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t52 >> 5) * 16) + ((t52 >> 2) & 7)) + 8) * 136) + (n0 + (((t52 & 3) * 2) + 80)))) = vec<float, 2>{{acc_0_42, acc_0_43}};
            }
            const int t53 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t53 >> 5) * 16) + ((t53 >> 2) & 7))) < m) && ((n0 + (((t53 & 3) * 2) + 88)) < 136)) {
                const int t54 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t54 >> 5) * 16) + ((t54 >> 2) & 7)) * 136) + (n0 + (((t54 & 3) * 2) + 88)))) = vec<float, 2>{{acc_0_44, acc_0_45}};
            }
            const int t55 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t55 >> 5) * 16) + ((t55 >> 2) & 7)) + 8)) < m) && ((n0 + (((t55 & 3) * 2) + 88)) < 136)) {
                const int t56 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t56 >> 5) * 16) + ((t56 >> 2) & 7)) + 8) * 136) + (n0 + (((t56 & 3) * 2) + 88)))) = vec<float, 2>{{acc_0_46, acc_0_47}};
            }
            const int t57 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t57 >> 5) * 16) + ((t57 >> 2) & 7))) < m) && ((n0 + (((t57 & 3) * 2) + 96)) < 136)) {
                const int t58 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t58 >> 5) * 16) + ((t58 >> 2) & 7)) * 136) + (n0 + (((t58 & 3) * 2) + 96)))) = vec<float, 2>{{acc_0_48, acc_0_49}};
            }
            const int t59 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t59 >> 5) * 16) + ((t59 >> 2) & 7)) + 8)) < m) && ((n0 + (((t59 & 3) * 2) + 96)) < 136)) {
                const int t60 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t60 >> 5) * 16) + ((t60 >> 2) & 7)) + 8) * 136) + (n0 + (((t60 & 3) * 2) + 96)))) = vec<float, 2>{{acc_0_50, acc_0_51}};
            }
            const int t61 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t61 >> 5) * 16) + ((t61 >> 2) & 7))) < m) && ((n0 + (((t61 & 3) * 2) + 104)) < 136)) {
                const int t62 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t62 >> 5) * 16) + ((t62 >> 2) & 7)) * 136) + (n0 + (((t62 & 3) * 2) + 104)))) = vec<float, 2>{{acc_0_52, acc_0_53}};
            }
            const int t63 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t63 >> 5) * 16) + ((t63 >> 2) & 7)) + 8)) < m) && ((n0 + (((t63 & 3) * 2) + 104)) < 136)) {
                const int t64 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t64 >> 5) * 16) + ((t64 >> 2) & 7)) + 8) * 136) + (n0 + (((t64 & 3) * 2) + 104)))) = vec<float, 2>{{acc_0_54, acc_0_55}};
            }
            const int t65 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t65 >> 5) * 16) + ((t65 >> 2) & 7))) < m) && ((n0 + (((t65 & 3) * 2) + 112)) < 136)) {
                const int t66 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t66 >> 5) * 16) + ((t66 >> 2) & 7)) * 136) + (n0 + (((t66 & 3) * 2) + 112)))) = vec<float, 2>{{acc_0_56, acc_0_57}};
            }
            const int t67 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t67 >> 5) * 16) + ((t67 >> 2) & 7)) + 8)) < m) && ((n0 + (((t67 & 3) * 2) + 112)) < 136)) {
                const int t68 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t68 >> 5) * 16) + ((t68 >> 2) & 7)) + 8) * 136) + (n0 + (((t68 & 3) * 2) + 112)))) = vec<float, 2>{{acc_0_58, acc_0_59}};
            }
            const int t69 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + (((t69 >> 5) * 16) + ((t69 >> 2) & 7))) < m) && ((n0 + (((t69 & 3) * 2) + 120)) < 136)) {
                const int t70 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t70 >> 5) * 16) + ((t70 >> 2) & 7)) * 136) + (n0 + (((t70 & 3) * 2) + 120)))) = vec<float, 2>{{acc_0_60, acc_0_61}};
            }
            const int t71 = tid & 127;
            if ((((m0 + (((tid >> 7) - 1) * 64)) + ((((t71 >> 5) * 16) + ((t71 >> 2) & 7)) + 8)) < m) && ((n0 + (((t71 & 3) * 2) + 120)) < 136)) {
                const int t72 = tid & 127;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t72 >> 5) * 16) + ((t72 >> 2) & 7)) + 8) * 136) + (n0 + (((t72 & 3) * 2) + 120)))) = vec<float, 2>{{acc_0_62, acc_0_63}};
            }
        }
    }
}
