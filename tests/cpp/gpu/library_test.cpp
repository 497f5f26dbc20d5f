// SPDX-License-Identifier: MIT
#include "gpu/library.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace dnnsuite::gpu {
namespace {

TEST(Library, OpensACopyThatTheProcessHas) {
    const Library& math = Library::open("libc.so.6", "");
    EXPECT_NE(math.path().find("/libc.so.6"), std::string::npos);
    EXPECT_EQ(math.function<int(int)>("abs")(-3), 3);
    EXPECT_EQ(&math, &Library::open("libc.so.6", ""));
}

TEST(Library, AMissingOneSaysWhereItWasLookedForAndWhatHelps) {
    add_library_folder("/nowhere/at/all");
    add_library_folder("/nowhere/at/all");
    const std::vector<std::string> folders = library_folders();
    EXPECT_EQ(std::count(folders.begin(), folders.end(), "/nowhere/at/all"), 1);
    try {
        Library::open("libdoes_not_exist.so.7", "buy one");
        FAIL() << "opened";
    } catch (const Unavailable& error) {
        EXPECT_NE(error.what_is_missing.find("libdoes_not_exist.so.7"), std::string::npos);
        EXPECT_NE(error.looked_in.find("/nowhere/at/all"), std::string::npos);
        EXPECT_EQ(error.remedy, "buy one");
    }
}

TEST(Library, AMissingFunctionNamesTheFile) {
    const Library& math = Library::open("libc.so.6", "");
    EXPECT_EQ(math.find("no_such_function"), nullptr);
    EXPECT_THROW(math.function<void()>("no_such_function"), Unavailable);
}

}  // namespace
}  // namespace dnnsuite::gpu
