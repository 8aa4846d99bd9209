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
static __device__ __forceinline__ unsigned emmy_shared(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
static __device__ __forceinline__ void emmy_peer_store_x4(float* to, unsigned rank, float v0, float v1, float v2, float v3) {
    unsigned at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(emmy_shared(to)), "r"(rank));
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v0), "f"(v1), "f"(v2), "f"(v3) : "memory");
}
extern "C" __global__ void __cluster_dims__(1, 1, 4) __launch_bounds__(64) k_cluster_sum(
    const float* __restrict__ x,
    float* __restrict__ y) {
    __shared__ __align__(16) float parts[256];
    const int bx = blockIdx.x;
    const int bz = blockIdx.z;
    const int tid = threadIdx.x;
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    const int rank = bz & 3;
    const int column = (bx * 256) + (tid * 4);
    float sums_0 = 0.0f, sums_1 = 0.0f, sums_2 = 0.0f, sums_3 = 0.0f;
    for (int row = rank; row < 37; row += 4) {
        const vec<float, 4> x_v1 = emmy_load_if<vec<float, 4>>((column < 300), x + ((row * 300) + column));
        sums_0 = sums_0 + x_v1.v[0];
        sums_1 = sums_1 + x_v1.v[1];
        sums_2 = sums_2 + x_v1.v[2];
        sums_3 = sums_3 + x_v1.v[3];
    }
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (column < 300) {
        const int t0 = tid * 4;
        emmy_peer_store_x4(parts + ((rank * 64) + (t0 & 63)), t0 >> 6, sums_0, sums_1, sums_2, sums_3);
    }
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    const int mine = ((bx * 256) + (rank * 64)) + tid;
    float total = 0.0f;
    if (mine < 300) {
        total = total + parts[tid];
        total = total + parts[tid + 64];
        total = total + parts[tid + 128];
        total = total + parts[tid + 192];
        y[mine] = total;
    }
}
