// SPDX-License-Identifier: MIT
#include "gpu/sealed_image.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace dnnsuite::gpu {
namespace {

const std::vector<std::uint8_t> kImage{1, 2, 3, 4, 5};

TEST(SealedImage, ComesBackAsItWas) {
    const SealedImage sealed = seal_image(kImage);
    EXPECT_GT(sealed.size(), kImage.size());
    EXPECT_EQ(unseal_image(sealed.data(), sealed.size()), kImage);
    const SealedImage empty = seal_image({});
    EXPECT_TRUE(unseal_image(empty.data(), empty.size()).empty());
}

TEST(SealedImage, AnyChangedByteIsFound) {
    const SealedImage sealed = seal_image(kImage);
    for (std::size_t i = 0; i < sealed.size(); ++i) {
        SealedImage damaged = sealed;
        damaged[i] ^= 0x40;
        EXPECT_THROW(unseal_image(damaged.data(), damaged.size()), Error) << "byte " << i;
    }
}

TEST(SealedImage, ACutIsFound) {
    const SealedImage sealed = seal_image(kImage);
    for (std::size_t size = 0; size < sealed.size(); ++size) {
        EXPECT_THROW(unseal_image(sealed.data(), size), Error) << size << " bytes";
    }
}

}  // namespace
}  // namespace dnnsuite::gpu
