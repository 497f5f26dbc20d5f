// SPDX-License-Identifier: MIT
// Activations that torch computes with a library's functions number by number of a vector: tanh, GELU by tanh, Mish,
// softplus and ELU, from the exponential of vector_math.hpp. Compiled once per instruction set.
#include "fused/cpu/activate_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector_math.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

using V = Vec<float>;

template <size_t N>
V polynomial(const V& x, const float (&factors)[N]) {  // from the highest power down
    V p(factors[0]);
    _Pragma("GCC unroll 8") for (size_t i = 1; i < N; ++i) p = p * x + V(factors[i]);
    return p;
}

V magnitude(const V& x) { return bits_as<float>(bits_as<int32_t>(x) & Vec<int32_t>(0x7FFFFFFF)); }

V with_sign_of(const V& x, const V& positive) {
    const Vec<int32_t> sign = bits_as<int32_t>(x) & Vec<int32_t>(static_cast<int32_t>(0x80000000u));
    return bits_as<float>(bits_as<int32_t>(positive) | sign);
}

/// Relative error 2e-7: a polynomial up to 0.625, where 1 - 2 / (exp(2 x) + 1) would lose digits.
V hyperbolic_tangent(const V& x) {
    const float near_0[] = {2.29583867e-3f,  -8.34697764e-3f, 2.17699595e-2f,
                            -5.39594069e-2f, 1.33333042e-1f,  -3.33333343e-1f};
    const V a = magnitude(x), square = x * x;
    const V small = x + x * square * polynomial(square, near_0);
    const V large = V(1.0f) - V(2.0f) / (exponential(a + a) + V(1.0f));
    return select(a < V(0.625f), small, with_sign_of(x, large));
}

/// exp(x) - 1 for x <= 0.
V exponential_less_1(const V& x) {
    const float near_0[] = {1.64844969e-4f, 1.37066294e-3f, 8.32869112e-3f, 4.16661277e-2f, 1.66666642e-1f, 0.5f};
    return select(x < V(-0.5f), exponential(x) - V(1.0f), x + x * x * polynomial(x, near_0));
}

/// log(1 + w) for w from 0 to 1.
V logarithm_of_1_plus(const V& w) {
    const float factors[] = {7.14975521e-2f,  -1.15712002e-1f, 1.16615102e-1f,  -1.24110505e-1f, 1.42499372e-1f,
                             -1.66684806e-1f, 2.00007081e-1f,  -2.49999896e-1f, 3.33333313e-1f};
    const auto halved = V(0.41421356f) < w;
    const V t = select(halved, (w - V(1.0f)) * V(0.5f), w), square = t * t;
    const V log = t * square * polynomial(t, factors) - square * V(0.5f) + t;
    return log + select(halved, V(0.693147181f), V(0.0f));
}

constexpr float kGeluFactor = 0.79788456f, kGeluCube = 0.044715f;  // sqrt(2 / pi)

struct Tanh {
    static V value(const V& x, const ActivateArguments&) { return hyperbolic_tangent(x); }
    static V slope(const V& x, const ActivateArguments&) {
        const V y = hyperbolic_tangent(x);
        return V(1.0f) - y * y;
    }
};

struct GeluTanh {  // (1 + tanh(u)) / 2 is the logistic function of v = 2 u
    struct Parts {
        V logistic, rest;  // its product with 1 less itself, without a difference that loses digits
    };
    static V twice_u(const V& x) { return x * (V(2.0f * kGeluFactor) + V(2.0f * kGeluFactor * kGeluCube) * x * x); }
    static Parts parts(const V& v) {
        const V e = exponential(V(0.0f) - magnitude(v)), d = V(1.0f) / (V(1.0f) + e), small = e * d;
        return {select(v < V(0.0f), small, d), small * d};
    }
    static V value(const V& x, const ActivateArguments&) { return x * parts(twice_u(x)).logistic; }
    static V slope(const V& x, const ActivateArguments&) {
        const Parts of = parts(twice_u(x));
        const V inner = V(2.0f * kGeluFactor) + V(6.0f * kGeluFactor * kGeluCube) * x * x;
        return of.logistic + select(V(0.0f) < of.rest, x * of.rest * inner, of.rest);  // 0 * inf is none
    }
};

struct Mish {  // tanh(log(1 + e)) is n / (n + 2), n = e (e + 2)
    static V bounded(const V& x) { return select(V(20.0f) < x, V(20.0f), x); }  // e^40 still fits
    static V value(const V& x, const ActivateArguments&) {
        const V e = exponential(bounded(x)), n = e * (e + V(2.0f));
        return x * (n / (n + V(2.0f)));
    }
    static V slope(const V& x, const ActivateArguments&) {
        const V b = bounded(x), e = exponential(b), n = e * (e + V(2.0f)), inverse = V(1.0f) / (n + V(2.0f));
        return n * inverse + b * (V(4.0f) * e * (e + V(1.0f))) * (inverse * inverse);
    }
};

struct Softplus {
    static V value(const V& x, const ActivateArguments& args) {
        const V z = x * V(args.first);
        const V log = logarithm_of_1_plus(exponential(V(0.0f) - magnitude(z)));
        const V y = (select(z < V(0.0f), V(0.0f), z) + log) * V(1.0f / args.first);
        return select(V(args.second) < z, x, y);
    }
    static V slope(const V& x, const ActivateArguments& args) {
        const V z = x * V(args.first);
        return select(V(args.second) < z, V(1.0f), logistic(z));
    }
};

struct Elu {
    static V value(const V& x, const ActivateArguments& args) {
        const V below = exponential_less_1(select(V(0.0f) < x, V(0.0f), x)) * V(args.first);
        return select(V(0.0f) < x, x, below) * V(args.second);
    }
    static V slope(const V& x, const ActivateArguments& args) {
        const V below = exponential(select(V(0.0f) < x, V(0.0f), x)) * V(args.first);
        return select(V(0.0f) < x, V(1.0f), below) * V(args.second);
    }
};

/// Calls body(place, numbers) for the vectors of tasks [begin, end).
template <class Body>
void for_vectors(const ActivateArguments& args, int64_t begin, int64_t end, const Body& body) {
    const int64_t per_task = args.rows.rows_per_task * args.rows.columns;
    const int64_t first = begin * per_task, last = end * per_task < args.count ? end * per_task : args.count;
    for_each_vector(last - first, [&](int64_t i, int64_t n) __attribute__((always_inline)) { body(first + i, n); });
}

template <class Of>
void forward(const ActivateArguments& args, int64_t begin, int64_t end) {
    for_vectors(args, begin, end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Of::value(V::load(args.x + i, n), args).store(args.y + i, n);
    });
}

template <class Of>
void backward(const ActivateArguments& args, int64_t begin, int64_t end) {
    for_vectors(args, begin, end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        (Of::slope(V::load(args.x + i, n), args) * V::load(args.grad + i, n)).store(args.y + i, n);
    });
}

}  // namespace

#define DNNSUITE_BY_CURVE(direction)                                         \
    switch (args.curve) {                                                    \
        case Curve::kTanh: return direction<Tanh>(args, begin, end);         \
        case Curve::kGeluTanh: return direction<GeluTanh>(args, begin, end); \
        case Curve::kMish: return direction<Mish>(args, begin, end);         \
        case Curve::kSoftplus: return direction<Softplus>(args, begin, end); \
        case Curve::kElu: return direction<Elu>(args, begin, end);           \
    }

void activate(const ActivateArguments& args, int64_t begin, int64_t end) { DNNSUITE_BY_CURVE(forward) }

void activate_backward(const ActivateArguments& args, int64_t begin, int64_t end) { DNNSUITE_BY_CURVE(backward) }

}  // namespace dnnsuite::fused::DNNSUITE_ISA
