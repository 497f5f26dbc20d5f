// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace dnnsuite::host {

/// A folder that stands in for / .
class FakeTree {
  public:
    FakeTree() {
        root = testing::TempDir() + "treeXXXXXX";
        EXPECT_NE(mkdtemp(root.data()), nullptr);
    }
    ~FakeTree() { std::filesystem::remove_all(root); }
    FakeTree(const FakeTree&) = delete;
    FakeTree& operator=(const FakeTree&) = delete;

    void write(const std::string& path, const std::string& text) const {
        std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
        std::ofstream(root + path) << text << "\n";
    }

    std::string root;
};

}  // namespace dnnsuite::host
