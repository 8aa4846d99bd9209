#include <cuda_fp16.h>
template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T v[N];
};
extern "C" __global__ void __launch_bounds__(4) k_storage_f16_8(
    const __half* __restrict__ x,
    __half* __restrict__ y,
    __half* __restrict__ z) {
    const int tx = threadIdx.x;
    // storage types
    const vec<__half, 8> x_v1 = ((tx < 3) ? *reinterpret_cast<const vec<__half, 8>*>(x + (tx * 8)) : vec<__half, 8>{{__float2half_rn(1.0f), __float2half_rn(1.0f), __float2half_rn(1.0f), __float2half_rn(1.0f), __float2half_rn(1.0f), __float2half_rn(1.0f), __float2half_rn(1.0f), __float2half_rn(1.0f)}});
    *reinterpret_cast<vec<__half, 8>*>(y + (tx * 8)) = vec<__half, 8>{{__float2half_rn((__half2float(x_v1.v[0]) + __half2float(x_v1.v[0]))), __float2half_rn((__half2float(x_v1.v[1]) + __half2float(x_v1.v[1]))), __float2half_rn((__half2float(x_v1.v[2]) + __half2float(x_v1.v[2]))), __float2half_rn((__half2float(x_v1.v[3]) + __half2float(x_v1.v[3]))), __float2half_rn((__half2float(x_v1.v[4]) + __half2float(x_v1.v[4]))), __float2half_rn((__half2float(x_v1.v[5]) + __half2float(x_v1.v[5]))), __float2half_rn((__half2float(x_v1.v[6]) + __half2float(x_v1.v[6]))), __float2half_rn((__half2float(x_v1.v[7]) + __half2float(x_v1.v[7])))}};
    const vec<__half, 8> x_v2 = *reinterpret_cast<const vec<__half, 8>*>(x + (tx * 8));
    if (tx < 3) {
        *reinterpret_cast<vec<__half, 8>*>(z + (tx * 8)) = x_v2;
    }
}
