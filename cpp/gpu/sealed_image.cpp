// SPDX-License-Identifier: MIT
#include "gpu/sealed_image.hpp"

#include <cstring>
#include <string>

#include "base/error.hpp"

namespace dnnsuite::gpu {

namespace {

struct Seal {
    char magic[8];
    std::uint64_t size;
    std::uint64_t digest;
};
constexpr char kMagic[8] = {'D', 'N', 'N', 'S', 'C', 'I', 'M', '1'};

/// FNV-1a, 64 bits: against damage, not against malice.
std::uint64_t digest_of(const std::uint8_t* data, std::size_t size) noexcept {
    std::uint64_t digest = 0xcbf29ce484222325;
    for (std::size_t i = 0; i < size; ++i) {
        digest = (digest ^ data[i]) * 0x100000001b3;
    }
    return digest;
}

}  // namespace

SealedImage seal_image(std::vector<std::uint8_t> image) {
    Seal seal{};
    std::memcpy(seal.magic, kMagic, sizeof kMagic);
    seal.size = image.size();
    seal.digest = digest_of(image.data(), image.size());
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&seal);
    image.insert(image.end(), bytes, bytes + sizeof seal);
    return image;
}

std::vector<std::uint8_t> unseal_image(const std::uint8_t* sealed, std::size_t size) {
    Seal seal{};
    if (size < sizeof seal) {
        throw Error("not a counter-data image: " + std::to_string(size) + " bytes are less than its seal");
    }
    const std::size_t inner = size - sizeof seal;
    std::memcpy(&seal, sealed + inner, sizeof seal);
    if (std::memcmp(seal.magic, kMagic, sizeof kMagic) != 0) {
        throw Error("not a counter-data image: no seal at its end; it is cut short, or another program's");
    }
    if (seal.size != inner || seal.digest != digest_of(sealed, inner)) {
        throw Error("a damaged counter-data image: its bytes are not those that were sealed; record it again");
    }
    return {sealed, sealed + inner};
}

}  // namespace dnnsuite::gpu
