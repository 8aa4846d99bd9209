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
        const int t1 = emmy_floordiv_i32(((((((m + 127) / 128) * 2) - bx) + blocks) - 1), blocks);
        for (int job = 0; job < t1; job += 1) {
            const int m0 = ((bx + (job * blocks)) / 2) * 128;
            const int n0 = ((bx + (job * blocks)) % 2) * 128;
            for (int kt = 0; kt < 5; kt += 1) {
                const int step = (job * 5) + kt;
                if (tid == 0) {
                    emmy_barrier_wait(tiles_empty + (step % 4), ((step / 4) % 2) ^ 1);
                    emmy_barrier_expect(tiles_full + (step % 4), 32768);
                    const int t2 = step % 4;
                    emmy_tensor_copy_2d(a_tile + (t2 * 8192), a_map, tiles_full + t2, kt * 64, m0);
                    const int t3 = step % 4;
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
        const int t4 = emmy_floordiv_i32(((((((m + 127) / 128) * 2) - bx) + blocks) - 1), blocks);
        for (int job = 0; job < t4; job += 1) {
            const int m0 = ((bx + (job * blocks)) / 2) * 128;
            const int n0 = ((bx + (job * blocks)) % 2) * 128;
            for (int kt = 0; kt < 5; kt += 1) {
                const int step = (job * 5) + kt;
                emmy_barrier_wait(tiles_full + (step % 4), (step / 4) % 2);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                const int t5 = (step % 4) * 8192;
                emmy_wgmma_m64n128k16_f16_f32(acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7, acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15, acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23, acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31, acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39, acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47, acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55, acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63, emmy_matrix(a_tile + (t5 + (((tid / 128) - 1) * 4096)), 16, 1024, 1), emmy_matrix(b_tile + t5, 16, 1024, 1), kt != 0);
                const int t6 = (step % 4) * 8192;
                emmy_wgmma_m64n128k16_f16_f32(acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7, acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15, acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23, acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31, acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39, acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47, acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55, acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63, emmy_matrix(a_tile + ((t6 + (((tid / 128) - 1) * 4096)) + 16), 16, 1024, 1), emmy_matrix(b_tile + (t6 + 16), 16, 1024, 1), true);
                const int t7 = (step % 4) * 8192;
                emmy_wgmma_m64n128k16_f16_f32(acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7, acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15, acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23, acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31, acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39, acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47, acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55, acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63, emmy_matrix(a_tile + ((t7 + (((tid / 128) - 1) * 4096)) + 32), 16, 1024, 1), emmy_matrix(b_tile + (t7 + 32), 16, 1024, 1), true);
                const int t8 = (step % 4) * 8192;
                emmy_wgmma_m64n128k16_f16_f32(acc_0_0, acc_0_1, acc_0_2, acc_0_3, acc_0_4, acc_0_5, acc_0_6, acc_0_7, acc_0_8, acc_0_9, acc_0_10, acc_0_11, acc_0_12, acc_0_13, acc_0_14, acc_0_15, acc_0_16, acc_0_17, acc_0_18, acc_0_19, acc_0_20, acc_0_21, acc_0_22, acc_0_23, acc_0_24, acc_0_25, acc_0_26, acc_0_27, acc_0_28, acc_0_29, acc_0_30, acc_0_31, acc_0_32, acc_0_33, acc_0_34, acc_0_35, acc_0_36, acc_0_37, acc_0_38, acc_0_39, acc_0_40, acc_0_41, acc_0_42, acc_0_43, acc_0_44, acc_0_45, acc_0_46, acc_0_47, acc_0_48, acc_0_49, acc_0_50, acc_0_51, acc_0_52, acc_0_53, acc_0_54, acc_0_55, acc_0_56, acc_0_57, acc_0_58, acc_0_59, acc_0_60, acc_0_61, acc_0_62, acc_0_63, emmy_matrix(a_tile + ((t8 + (((tid / 128) - 1) * 4096)) + 48), 16, 1024, 1), emmy_matrix(b_tile + (t8 + 48), 16, 1024, 1), true);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                __syncwarp();
                if ((tid % 32) == 0) {
                    emmy_barrier_arrive(tiles_empty + (step % 4));
                }
            }
            float* const c_block = c + ((long long)(m0 + (((tid / 128) - 1) * 64)) * 136LL);
            const int t9 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t9 / 32) * 16) + ((t9 / 4) % 8))) < m) && ((n0 + ((t9 % 4) * 2)) < 136)) {
                const int t10 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t10 / 32) * 16) + ((t10 / 4) % 8)) * 136) + (n0 + ((t10 % 4) * 2)))) = vec<float, 2>{{acc_0_0, acc_0_1}};
            }
            const int t11 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t11 / 32) * 16) + ((t11 / 4) % 8)) + 8)) < m) && ((n0 + ((t11 % 4) * 2)) < 136)) {
                const int t12 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t12 / 32) * 16) + ((t12 / 4) % 8)) + 8) * 136) + (n0 + ((t12 % 4) * 2)))) = vec<float, 2>{{acc_0_2, acc_0_3}};
            }
            const int t13 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t13 / 32) * 16) + ((t13 / 4) % 8))) < m) && ((n0 + (((t13 % 4) * 2) + 8)) < 136)) {
                const int t14 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t14 / 32) * 16) + ((t14 / 4) % 8)) * 136) + (n0 + (((t14 % 4) * 2) + 8)))) = vec<float, 2>{{acc_0_4, acc_0_5}};
            }
            const int t15 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t15 / 32) * 16) + ((t15 / 4) % 8)) + 8)) < m) && ((n0 + (((t15 % 4) * 2) + 8)) < 136)) {
                const int t16 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t16 / 32) * 16) + ((t16 / 4) % 8)) + 8) * 136) + (n0 + (((t16 % 4) * 2) + 8)))) = vec<float, 2>{{acc_0_6, acc_0_7}};
            }
            const int t17 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t17 / 32) * 16) + ((t17 / 4) % 8))) < m) && ((n0 + (((t17 % 4) * 2) + 16)) < 136)) {
                const int t18 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t18 / 32) * 16) + ((t18 / 4) % 8)) * 136) + (n0 + (((t18 % 4) * 2) + 16)))) = vec<float, 2>{{acc_0_8, acc_0_9}};
            }
            const int t19 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t19 / 32) * 16) + ((t19 / 4) % 8)) + 8)) < m) && ((n0 + (((t19 % 4) * 2) + 16)) < 136)) {
                const int t20 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t20 / 32) * 16) + ((t20 / 4) % 8)) + 8) * 136) + (n0 + (((t20 % 4) * 2) + 16)))) = vec<float, 2>{{acc_0_10, acc_0_11}};
            }
            const int t21 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t21 / 32) * 16) + ((t21 / 4) % 8))) < m) && ((n0 + (((t21 % 4) * 2) + 24)) < 136)) {
                const int t22 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t22 / 32) * 16) + ((t22 / 4) % 8)) * 136) + (n0 + (((t22 % 4) * 2) + 24)))) = vec<float, 2>{{acc_0_12, acc_0_13}};
            }
            const int t23 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t23 / 32) * 16) + ((t23 / 4) % 8)) + 8)) < m) && ((n0 + (((t23 % 4) * 2) + 24)) < 136)) {
                const int t24 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t24 / 32) * 16) + ((t24 / 4) % 8)) + 8) * 136) + (n0 + (((t24 % 4) * 2) + 24)))) = vec<float, 2>{{acc_0_14, acc_0_15}};
            }
            const int t25 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t25 / 32) * 16) + ((t25 / 4) % 8))) < m) && ((n0 + (((t25 % 4) * 2) + 32)) < 136)) {
                const int t26 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t26 / 32) * 16) + ((t26 / 4) % 8)) * 136) + (n0 + (((t26 % 4) * 2) + 32)))) = vec<float, 2>{{acc_0_16, acc_0_17}};
            }
            const int t27 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t27 / 32) * 16) + ((t27 / 4) % 8)) + 8)) < m) && ((n0 + (((t27 % 4) * 2) + 32)) < 136)) {
                const int t28 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t28 / 32) * 16) + ((t28 / 4) % 8)) + 8) * 136) + (n0 + (((t28 % 4) * 2) + 32)))) = vec<float, 2>{{acc_0_18, acc_0_19}};
            }
            const int t29 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t29 / 32) * 16) + ((t29 / 4) % 8))) < m) && ((n0 + (((t29 % 4) * 2) + 40)) < 136)) {
                const int t30 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t30 / 32) * 16) + ((t30 / 4) % 8)) * 136) + (n0 + (((t30 % 4) * 2) + 40)))) = vec<float, 2>{{acc_0_20, acc_0_21}};
            }
            const int t31 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t31 / 32) * 16) + ((t31 / 4) % 8)) + 8)) < m) && ((n0 + (((t31 % 4) * 2) + 40)) < 136)) {
                const int t32 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t32 / 32) * 16) + ((t32 / 4) % 8)) + 8) * 136) + (n0 + (((t32 % 4) * 2) + 40)))) = vec<float, 2>{{acc_0_22, acc_0_23}};
            }
            const int t33 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t33 / 32) * 16) + ((t33 / 4) % 8))) < m) && ((n0 + (((t33 % 4) * 2) + 48)) < 136)) {
                const int t34 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t34 / 32) * 16) + ((t34 / 4) % 8)) * 136) + (n0 + (((t34 % 4) * 2) + 48)))) = vec<float, 2>{{acc_0_24, acc_0_25}};
            }
            const int t35 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t35 / 32) * 16) + ((t35 / 4) % 8)) + 8)) < m) && ((n0 + (((t35 % 4) * 2) + 48)) < 136)) {
                const int t36 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t36 / 32) * 16) + ((t36 / 4) % 8)) + 8) * 136) + (n0 + (((t36 % 4) * 2) + 48)))) = vec<float, 2>{{acc_0_26, acc_0_27}};
            }
            const int t37 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t37 / 32) * 16) + ((t37 / 4) % 8))) < m) && ((n0 + (((t37 % 4) * 2) + 56)) < 136)) {
                const int t38 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t38 / 32) * 16) + ((t38 / 4) % 8)) * 136) + (n0 + (((t38 % 4) * 2) + 56)))) = vec<float, 2>{{acc_0_28, acc_0_29}};
            }
            const int t39 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t39 / 32) * 16) + ((t39 / 4) % 8)) + 8)) < m) && ((n0 + (((t39 % 4) * 2) + 56)) < 136)) {
                const int t40 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t40 / 32) * 16) + ((t40 / 4) % 8)) + 8) * 136) + (n0 + (((t40 % 4) * 2) + 56)))) = vec<float, 2>{{acc_0_30, acc_0_31}};
            }
            const int t41 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t41 / 32) * 16) + ((t41 / 4) % 8))) < m) && ((n0 + (((t41 % 4) * 2) + 64)) < 136)) {
                const int t42 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t42 / 32) * 16) + ((t42 / 4) % 8)) * 136) + (n0 + (((t42 % 4) * 2) + 64)))) = vec<float, 2>{{acc_0_32, acc_0_33}};
            }
            const int t43 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t43 / 32) * 16) + ((t43 / 4) % 8)) + 8)) < m) && ((n0 + (((t43 % 4) * 2) + 64)) < 136)) {
                const int t44 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t44 / 32) * 16) + ((t44 / 4) % 8)) + 8) * 136) + (n0 + (((t44 % 4) * 2) + 64)))) = vec<float, 2>{{acc_0_34, acc_0_35}};
            }
            const int t45 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t45 / 32) * 16) + ((t45 / 4) % 8))) < m) && ((n0 + (((t45 % 4) * 2) + 72)) < 136)) {
                const int t46 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t46 / 32) * 16) + ((t46 / 4) % 8)) * 136) + (n0 + (((t46 % 4) * 2) + 72)))) = vec<float, 2>{{acc_0_36, acc_0_37}};
            }
            const int t47 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t47 / 32) * 16) + ((t47 / 4) % 8)) + 8)) < m) && ((n0 + (((t47 % 4) * 2) + 72)) < 136)) {
                const int t48 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t48 / 32) * 16) + ((t48 / 4) % 8)) + 8) * 136) + (n0 + (((t48 % 4) * 2) + 72)))) = vec<float, 2>{{acc_0_38, acc_0_39}};
            }
            const int t49 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t49 / 32) * 16) + ((t49 / 4) % 8))) < m) && ((n0 + (((t49 % 4) * 2) + 80)) < 136)) {
                const int t50 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t50 / 32) * 16) + ((t50 / 4) % 8)) * 136) + (n0 + (((t50 % 4) * 2) + 80)))) = vec<float, 2>{{acc_0_40, acc_0_41}};
            }
            const int t51 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t51 / 32) * 16) + ((t51 / 4) % 8)) + 8)) < m) && ((n0 + (((t51 % 4) * 2) + 80)) < 136)) {
                const int t52 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t52 / 32) * 16) + ((t52 / 4) % 8)) + 8) * 136) + (n0 + (((t52 % 4) * 2) + 80)))) = vec<float, 2>{{acc_0_42, acc_0_43}};
            }
            const int t53 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t53 / 32) * 16) + ((t53 / 4) % 8))) < m) && ((n0 + (((t53 % 4) * 2) + 88)) < 136)) {
                const int t54 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t54 / 32) * 16) + ((t54 / 4) % 8)) * 136) + (n0 + (((t54 % 4) * 2) + 88)))) = vec<float, 2>{{acc_0_44, acc_0_45}};
            }
            const int t55 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t55 / 32) * 16) + ((t55 / 4) % 8)) + 8)) < m) && ((n0 + (((t55 % 4) * 2) + 88)) < 136)) {
                const int t56 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t56 / 32) * 16) + ((t56 / 4) % 8)) + 8) * 136) + (n0 + (((t56 % 4) * 2) + 88)))) = vec<float, 2>{{acc_0_46, acc_0_47}};
            }
            const int t57 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t57 / 32) * 16) + ((t57 / 4) % 8))) < m) && ((n0 + (((t57 % 4) * 2) + 96)) < 136)) {
                const int t58 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t58 / 32) * 16) + ((t58 / 4) % 8)) * 136) + (n0 + (((t58 % 4) * 2) + 96)))) = vec<float, 2>{{acc_0_48, acc_0_49}};
            }
            const int t59 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t59 / 32) * 16) + ((t59 / 4) % 8)) + 8)) < m) && ((n0 + (((t59 % 4) * 2) + 96)) < 136)) {
                const int t60 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t60 / 32) * 16) + ((t60 / 4) % 8)) + 8) * 136) + (n0 + (((t60 % 4) * 2) + 96)))) = vec<float, 2>{{acc_0_50, acc_0_51}};
            }
            const int t61 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t61 / 32) * 16) + ((t61 / 4) % 8))) < m) && ((n0 + (((t61 % 4) * 2) + 104)) < 136)) {
                const int t62 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t62 / 32) * 16) + ((t62 / 4) % 8)) * 136) + (n0 + (((t62 % 4) * 2) + 104)))) = vec<float, 2>{{acc_0_52, acc_0_53}};
            }
            const int t63 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t63 / 32) * 16) + ((t63 / 4) % 8)) + 8)) < m) && ((n0 + (((t63 % 4) * 2) + 104)) < 136)) {
                const int t64 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t64 / 32) * 16) + ((t64 / 4) % 8)) + 8) * 136) + (n0 + (((t64 % 4) * 2) + 104)))) = vec<float, 2>{{acc_0_54, acc_0_55}};
            }
            const int t65 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t65 / 32) * 16) + ((t65 / 4) % 8))) < m) && ((n0 + (((t65 % 4) * 2) + 112)) < 136)) {
                const int t66 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t66 / 32) * 16) + ((t66 / 4) % 8)) * 136) + (n0 + (((t66 % 4) * 2) + 112)))) = vec<float, 2>{{acc_0_56, acc_0_57}};
            }
            const int t67 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t67 / 32) * 16) + ((t67 / 4) % 8)) + 8)) < m) && ((n0 + (((t67 % 4) * 2) + 112)) < 136)) {
                const int t68 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t68 / 32) * 16) + ((t68 / 4) % 8)) + 8) * 136) + (n0 + (((t68 % 4) * 2) + 112)))) = vec<float, 2>{{acc_0_58, acc_0_59}};
            }
            const int t69 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + (((t69 / 32) * 16) + ((t69 / 4) % 8))) < m) && ((n0 + (((t69 % 4) * 2) + 120)) < 136)) {
                const int t70 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + (((((t70 / 32) * 16) + ((t70 / 4) % 8)) * 136) + (n0 + (((t70 % 4) * 2) + 120)))) = vec<float, 2>{{acc_0_60, acc_0_61}};
            }
            const int t71 = tid % 128;
            if ((((m0 + (((tid / 128) - 1) * 64)) + ((((t71 / 32) * 16) + ((t71 / 4) % 8)) + 8)) < m) && ((n0 + (((t71 % 4) * 2) + 120)) < 136)) {
                const int t72 = tid % 128;
                *reinterpret_cast<vec<float, 2>*>(c_block + ((((((t72 / 32) * 16) + ((t72 / 4) % 8)) + 8) * 136) + (n0 + (((t72 % 4) * 2) + 120)))) = vec<float, 2>{{acc_0_62, acc_0_63}};
            }
        }
    }
}
