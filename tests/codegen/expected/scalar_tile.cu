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
extern "C" __global__ void __launch_bounds__(16) k_scalar_tile(
    const float* __restrict__ a,
    const float* __restrict__ b,
    float* __restrict__ c) {
    __shared__ __align__(16) float a_tile[32];
    __shared__ __align__(16) float b_tile[64];
    const int bx = blockIdx.x;
    const int by = blockIdx.y;
    const int tid = threadIdx.x + threadIdx.y * 4;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    float acc_0_0 = 0.0f, acc_0_1 = 0.0f, acc_0_2 = 0.0f, acc_0_3 = 0.0f, acc_1_0 = 0.0f, acc_1_1 = 0.0f, acc_1_2 = 0.0f, acc_1_3 = 0.0f;
    for (int k0 = 0; k0 < 13; k0 += 4) {
        const int t0 = tid >> 2;
        const int t1 = tid & 3;
        const int t2 = (by * 8) + t0;
        const int t3 = k0 + t1;
        a_tile[(t0 * 4) + t1] = (((t2 < 19) && (t3 < 13)) ? a[(t2 * 13) + t3] : 0.0f);
        const int t4 = (tid + 16) >> 2;
        const int t5 = tid & 3;
        const int t6 = (by * 8) + t4;
        const int t7 = k0 + t5;
        a_tile[(t4 * 4) + t5] = (((t6 < 19) && (t7 < 13)) ? a[(t6 * 13) + t7] : 0.0f);
        const int t8 = k0 + (tid >> 2);
        const int t9 = (bx * 16) + ((tid & 3) * 4);
        const vec<float, 4> b_v1 = emmy_load_if<vec<float, 4>>(((t8 < 13) && (t9 < 24)), b + ((t8 * 24) + t9));
        *reinterpret_cast<vec<float, 4>*>(b_tile + (((tid >> 2) * 16) + ((tid & 3) * 4))) = b_v1;
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 4; kk += 1) {
            const vec<float, 4> b_tile_v2 = *reinterpret_cast<const vec<float, 4>*>(b_tile + ((kk * 16) + (tx * 4)));
            acc_0_0 = acc_0_0 + (a_tile[(ty * 8) + kk] * b_tile_v2.v[0]);
            acc_0_1 = acc_0_1 + (a_tile[(ty * 8) + kk] * b_tile_v2.v[1]);
            acc_0_2 = acc_0_2 + (a_tile[(ty * 8) + kk] * b_tile_v2.v[2]);
            acc_0_3 = acc_0_3 + (a_tile[(ty * 8) + kk] * b_tile_v2.v[3]);
            const vec<float, 4> b_tile_v3 = *reinterpret_cast<const vec<float, 4>*>(b_tile + ((kk * 16) + (tx * 4)));
            acc_1_0 = acc_1_0 + (a_tile[(((ty * 2) + 1) * 4) + kk] * b_tile_v3.v[0]);
            acc_1_1 = acc_1_1 + (a_tile[(((ty * 2) + 1) * 4) + kk] * b_tile_v3.v[1]);
            acc_1_2 = acc_1_2 + (a_tile[(((ty * 2) + 1) * 4) + kk] * b_tile_v3.v[2]);
            acc_1_3 = acc_1_3 + (a_tile[(((ty * 2) + 1) * 4) + kk] * b_tile_v3.v[3]);
        }
        __syncthreads();
    }
    if ((((by * 8) + (ty * 2)) < 19) && (((bx * 16) + (tx * 4)) < 24)) {
        *reinterpret_cast<vec<float, 4>*>(c + ((((by * 8) + (ty * 2)) * 24) + ((bx * 16) + (tx * 4)))) = vec<float, 4>{{acc_0_0, acc_0_1, acc_0_2, acc_0_3}};
    }
    if (((((by * 8) + (ty * 2)) + 1) < 19) && (((bx * 16) + (tx * 4)) < 24)) {
        *reinterpret_cast<vec<float, 4>*>(c + (((((by * 8) + (ty * 2)) + 1) * 24) + ((bx * 16) + (tx * 4)))) = vec<float, 4>{{acc_1_0, acc_1_1, acc_1_2, acc_1_3}};
    }
}
