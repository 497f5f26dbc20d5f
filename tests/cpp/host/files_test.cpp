// SPDX-License-Identifier: MIT
#include "host/files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

namespace dnnsuite::host {
namespace {

std::string folder() {
    std::string path = testing::TempDir() + "filesXXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    return path;
}

TEST(Files, ReadsAllAndDropsTheLastNewlines) {
    const std::string path = folder() + "/a";
    std::ofstream(path) << std::string(10000, 'x') << "\n\n";
    EXPECT_EQ(read_text(path), std::string(10000, 'x'));
    EXPECT_EQ(read_text(path + "/no"), std::nullopt);
    EXPECT_EQ(read_text(testing::TempDir()), std::nullopt);  // a folder opens, and cannot be read
}

TEST(Files, WritesToWhatIsThere) {
    const std::string path = folder() + "/a";
    EXPECT_EQ(write_text(path, "1"), ENOENT);  // the kernel makes control files, we never do
    std::ofstream(path).close();
    EXPECT_EQ(write_text(path, "12"), 0);
    EXPECT_EQ(read_text(path), "12");
    EXPECT_EQ(write_text(testing::TempDir(), "1"), EISDIR);
}

TEST(Files, ListsSorted) {
    const std::string path = folder();
    for (const char* name : {"/b", "/a"}) std::ofstream(path + name).close();
    ASSERT_EQ(mkdir((path + "/c").c_str(), 0700), 0);
    EXPECT_EQ(list_names(path), (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ(list_names(path, true), (std::vector<std::string>{"c"}));
    EXPECT_TRUE(list_names(path + "/none").empty());
}

TEST(Files, Splits) {
    EXPECT_EQ(split("a,,b,", ','), (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(split("", ',').empty());
}

TEST(Files, FindsValuesByTheirWholeKey) {
    const char* text = "oom 2\noom_kill 3\noom_group_kill 0";
    EXPECT_EQ(value_of(text, "oom_kill"), 3);
    EXPECT_EQ(value_of(text, "oom"), 2);
    EXPECT_EQ(value_of(text, "kill"), std::nullopt);
    EXPECT_EQ(value_of("oom x", "oom"), std::nullopt);
}

TEST(Files, IntegersAreWhole) {
    EXPECT_EQ(parse_integer("-7"), -7);
    for (const char* text : {"", "7a", " 7", "max", "99999999999999999999"})
        EXPECT_EQ(parse_integer(text), std::nullopt) << text;
}

}  // namespace
}  // namespace dnnsuite::host
