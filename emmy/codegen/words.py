"""Words that a name in a kernel must not take: keywords, types and functions that the printed text uses."""

_OPENCL = (
    "auto break case char const continue default do double else enum extern float for goto half if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool "
    "kernel global local constant private uchar ushort uint ulong size_t image event_t sampler_t true false "
    "max min add sub mul exp log sqrt sin cos tan erf erfc pow select any all dot cross mix step sign clamp distance "
    "length normalize fract floor ceil round trunc fma mad abs rotate barrier"
)
_CUDA = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr continue "
    "default delete do double else enum explicit export extern false float for friend goto half if inline int long "
    "mutable namespace new not not_eq operator or or_eq private protected public register return short signed sizeof "
    "static struct switch template this throw true try typedef typename union unsigned using virtual void volatile "
    "while xor xor_eq vec smem max min exp log pow sin cos tan sqrt abs floor ceil round trunc fma erf erfc normcdf"
)

OPENCL_WORDS = frozenset(_OPENCL.split())
CUDA_WORDS = frozenset(_CUDA.split())
