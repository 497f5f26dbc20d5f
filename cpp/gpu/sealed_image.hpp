// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dnnsuite::gpu {

/// A counter-data image with a trailer that says how long it was and what was in it.
///
/// CUPTI evaluates an image without looking whether it is one: a damaged file ends the process. So images leave this
/// package sealed, and only those with an unbroken seal are evaluated.
using SealedImage = std::vector<std::uint8_t>;

SealedImage seal_image(std::vector<std::uint8_t> image);

/// The image without its seal. Throws Error when there is none, or when a byte has changed since.
std::vector<std::uint8_t> unseal_image(const std::uint8_t* sealed, std::size_t size);

}  // namespace dnnsuite::gpu
