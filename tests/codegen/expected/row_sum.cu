template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T v[N];
};
extern "C" __global__ void __launch_bounds__(64) k_row_sum(
    const float* __restrict__ x,
    float* __restrict__ out0,
    const int n) {
    __shared__ __align__(16) float scratch0[64];
    const int bx = blockIdx.x;
    const int tid = threadIdx.x;
    float part0 = 0.0f;
    for (int i = tid; i < n; i += 64) {
        const float value = x[(bx * n) + i];
        const float next0 = part0 + value;
        part0 = next0;
    }
    const float other_c1 = __shfl_xor_sync(0xffffffffu, part0, 16);
    part0 = part0 + other_c1;
    const float other_c2 = __shfl_xor_sync(0xffffffffu, part0, 8);
    part0 = part0 + other_c2;
    const float other_c3 = __shfl_xor_sync(0xffffffffu, part0, 4);
    part0 = part0 + other_c3;
    const float other_c4 = __shfl_xor_sync(0xffffffffu, part0, 2);
    part0 = part0 + other_c4;
    const float other_c5 = __shfl_xor_sync(0xffffffffu, part0, 1);
    part0 = part0 + other_c5;
    if ((tid & 31) == 0) scratch0[tid >> 5] = part0;
    __syncthreads();
    const vec<float, 2> scratch0_v1 = *reinterpret_cast<const vec<float, 2>*>(scratch0);
    const float joined_c7 = scratch0_v1.v[0] + scratch0_v1.v[1];
    part0 = joined_c7;
    out0[(bx * 64) + tid] = part0;
}
