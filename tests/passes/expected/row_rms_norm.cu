template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T v[N];
};
template <typename V>
static __device__ __forceinline__ V emmy_load_early(const void* from) {
    V v;
    if constexpr (sizeof(V) == 16) {
        uint4 r;
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from));
        memcpy(&v, &r, 16);
    } else if constexpr (sizeof(V) == 8) {
        uint2 r;
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(from));
        memcpy(&v, &r, 8);
    } else if constexpr (sizeof(V) == 4) {
        unsigned r;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(r) : "l"(from));
        memcpy(&v, &r, 4);
    } else {
        v = *static_cast<const V*>(from);
    }
    return v;
}
extern "C" __global__ void __launch_bounds__(256) rms_norm(
    const float* __restrict__ x,
    const float* __restrict__ w,
    float* __restrict__ out,
    const int m) {
    __shared__ __align__(16) float joint_ss0_shared[256];
    const int bx = blockIdx.x;
    const int tid = threadIdx.x + threadIdx.y * 128;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const bool inside = ((bx * 2) + ty) < m;
    const int row = min(((bx * 2) + ty), (m - 1));
    const float* const x_row = x + ((long long)row * 1024LL);
    float kept_0_0, kept_0_1, kept_0_2, kept_0_3, kept_1_0, kept_1_1, kept_1_2, kept_1_3;
    float acc_ss0_0_0, acc_ss0_0_1, acc_ss0_0_2, acc_ss0_0_3;
    const vec<float, 4> w_v1 = emmy_load_early<vec<float, 4>>(w + (tx * 4));
    const vec<float, 4> x_row_v2 = *reinterpret_cast<const vec<float, 4>*>(x_row + (tx * 4));
    acc_ss0_0_0 = x_row_v2.v[0] * x_row_v2.v[0];
    acc_ss0_0_1 = x_row_v2.v[1] * x_row_v2.v[1];
    acc_ss0_0_2 = x_row_v2.v[2] * x_row_v2.v[2];
    acc_ss0_0_3 = x_row_v2.v[3] * x_row_v2.v[3];
    kept_0_0 = x_row_v2.v[0];
    kept_0_1 = x_row_v2.v[1];
    kept_0_2 = x_row_v2.v[2];
    kept_0_3 = x_row_v2.v[3];
    const vec<float, 4> w_v3 = emmy_load_early<vec<float, 4>>(w + ((tx + 128) * 4));
    const vec<float, 4> x_row_v4 = *reinterpret_cast<const vec<float, 4>*>(x_row + ((tx + 128) * 4));
    acc_ss0_0_0 = acc_ss0_0_0 + (x_row_v4.v[0] * x_row_v4.v[0]);
    acc_ss0_0_1 = acc_ss0_0_1 + (x_row_v4.v[1] * x_row_v4.v[1]);
    acc_ss0_0_2 = acc_ss0_0_2 + (x_row_v4.v[2] * x_row_v4.v[2]);
    acc_ss0_0_3 = acc_ss0_0_3 + (x_row_v4.v[3] * x_row_v4.v[3]);
    kept_1_0 = x_row_v4.v[0];
    kept_1_1 = x_row_v4.v[1];
    kept_1_2 = x_row_v4.v[2];
    kept_1_3 = x_row_v4.v[3];
    const float merged = acc_ss0_0_0 + acc_ss0_0_2;
    const float merged1 = acc_ss0_0_1 + acc_ss0_0_3;
    const float merged2 = merged + merged1;
    float joint_ss0_0;
    joint_ss0_0 = merged2;
    const float other_c1 = __shfl_xor_sync(0xffffffffu, joint_ss0_0, 16);
    joint_ss0_0 = joint_ss0_0 + other_c1;
    const float other_c2 = __shfl_xor_sync(0xffffffffu, joint_ss0_0, 8);
    joint_ss0_0 = joint_ss0_0 + other_c2;
    const float other_c3 = __shfl_xor_sync(0xffffffffu, joint_ss0_0, 4);
    joint_ss0_0 = joint_ss0_0 + other_c3;
    const float other_c4 = __shfl_xor_sync(0xffffffffu, joint_ss0_0, 2);
    joint_ss0_0 = joint_ss0_0 + other_c4;
    const float other_c5 = __shfl_xor_sync(0xffffffffu, joint_ss0_0, 1);
    joint_ss0_0 = joint_ss0_0 + other_c5;
    if ((tid & 31) == 0) joint_ss0_shared[tid >> 5] = joint_ss0_0;
    __syncthreads();
    const vec<float, 4> joint_ss0_shared_v5 = *reinterpret_cast<const vec<float, 4>*>(joint_ss0_shared + ((tid >> 7) * 4));
    const float joined_c7 = joint_ss0_shared_v5.v[0] + joint_ss0_shared_v5.v[1];
    const float joined_c8 = joint_ss0_shared_v5.v[2] + joint_ss0_shared_v5.v[3];
    const float joined_c9 = joined_c7 + joined_c8;
    joint_ss0_0 = joined_c9;
    const float ss0 = joint_ss0_0;
    const float row_value = rsqrtf(((ss0 / 1024.0f) + 1e-06f));
    float* const out_row = out + ((long long)row * 1024LL);
    if (inside) {
        *reinterpret_cast<vec<float, 4>*>(out_row + (tx * 4)) = vec<float, 4>{{((kept_0_0 * row_value) * w_v1.v[0]), ((kept_0_1 * row_value) * w_v1.v[1]), ((kept_0_2 * row_value) * w_v1.v[2]), ((kept_0_3 * row_value) * w_v1.v[3])}};
    }
    if (inside) {
        *reinterpret_cast<vec<float, 4>*>(out_row + ((tx + 128) * 4)) = vec<float, 4>{{((kept_1_0 * row_value) * w_v3.v[0]), ((kept_1_1 * row_value) * w_v3.v[1]), ((kept_1_2 * row_value) * w_v3.v[2]), ((kept_1_3 * row_value) * w_v3.v[3])}};
    }
}
