// SPDX-License-Identifier: MIT
#include "gpu/activity_columns.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dnnsuite::gpu {
namespace {

void add_marker(ActivityColumns& to, std::int64_t t_ns, const char* name) {
    to.markers.t_ns.push_back(t_ns);
    to.markers.event.push_back(2);
    to.markers.id.push_back(1);
    to.markers.thread.push_back(3);
    to.markers.name.push_back(name == nullptr ? kNoName : to.strings.intern(name));
    to.markers.domain.push_back(to.strings.intern("domain"));
    ++to.records;
}

TEST(Strings, AreKeptOnce) {
    Strings strings;
    const Name one = strings.intern("one");
    const Name two = strings.intern("two");
    EXPECT_NE(one, two);
    EXPECT_EQ(strings.intern(std::string("o") + "ne"), one);
    EXPECT_EQ(strings.all(), (std::vector<std::string>{"one", "two"}));
}

TEST(ActivityColumns, AppendingTranslatesNames) {
    ActivityColumns a;
    ActivityColumns b;
    add_marker(a, 1, "x");
    add_marker(b, 2, "y");
    add_marker(b, 3, nullptr);
    add_marker(b, 4, "x");
    b.damaged = 1;
    a.append(b);
    std::vector<std::string> names;
    for (const Name name : a.markers.name) {
        names.push_back(name == kNoName ? "-" : a.strings.all()[static_cast<std::size_t>(name)]);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"x", "y", "-", "x"}));
    EXPECT_EQ(a.markers.t_ns, (std::vector<std::int64_t>{1, 2, 3, 4}));
    EXPECT_EQ(a.strings.all().size(), 3U);
    EXPECT_EQ(a.records, 4U);
    EXPECT_EQ(a.damaged, 1U);
}

TEST(ActivityColumns, EveryColumnOfATableIsAppended) {
    ActivityColumns a;
    ActivityColumns b;
    ActivityColumns::each_table(b, [](const char*, auto& table) {
        std::remove_reference_t<decltype(table)>::each(table, [](const char*, auto& column) { column.resize(2); });
    });
    b.strings.intern("name 0");
    a.append(b);
    a.append(b);
    ActivityColumns::each_table(a, [](const char* name, auto& table) {
        std::remove_reference_t<decltype(table)>::each(table, [name](const char* column_name, auto& column) {
            EXPECT_EQ(column.size(), 4U) << name << column_name;
        });
    });
}

}  // namespace
}  // namespace dnnsuite::gpu
