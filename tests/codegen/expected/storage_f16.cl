typedef ushort ushort8_at __attribute__((ext_vector_type(8), aligned(2)));
__attribute__((reqd_work_group_size(4, 1, 1)))
__kernel void k_storage_f16_8(
    __global const half* restrict x,
    __global half* restrict y,
    __global half* restrict z) {
    const int tx = get_local_id(0);
    // storage types
    float8 t0 = (float8)(1.0f);
    if (tx < 3) t0 = vload_half8(0, x + (tx * 8));
    const float8 value = t0;
    vstore_half8((value + value), 0, y + (tx * 8));
    const int t1 = tx * 8;
    if (tx < 3) *(__global ushort8_at*)((__global ushort*)(z + t1)) = *(__global const ushort8_at*)((__global const ushort*)(x + t1));
}
