// SPDX-License-Identifier: MIT
#include "gpu/activity_columns.hpp"

namespace dnnsuite::gpu {

namespace {

/// The columns of a table are those of another one of its type, in the same order.
template <class Table, class F>
void zip(Table& to, const Table& from, F f) {
    std::vector<const void*> columns;
    Table::each(from, [&](const char*, const auto& column) { columns.push_back(&column); });
    std::size_t next = 0;
    Table::each(to, [&](const char*, auto& column) {
        using Column = std::remove_reference_t<decltype(column)>;
        f(column, *static_cast<const Column*>(columns[next++]));
    });
}

}  // namespace

Name Strings::intern(std::string_view text) {
    if (const auto known = index_.find(text); known != index_.end()) {
        return Name{known->second};
    }
    const auto next = static_cast<std::int32_t>(all_.size());
    all_.emplace_back(text);
    index_.emplace(std::string(text), next);
    return Name{next};
}

void ActivityColumns::append(const ActivityColumns& other) {
    std::vector<Name> here;  // by the other's name
    here.reserve(other.strings.all().size());
    for (const std::string& text : other.strings.all()) {
        here.push_back(strings.intern(text));
    }
    std::vector<const void*> tables;
    each_table(other, [&](const char*, const auto& table) { tables.push_back(&table); });
    std::size_t next = 0;
    each_table(*this, [&](const char*, auto& table) {
        using Table = std::remove_reference_t<decltype(table)>;
        zip(table, *static_cast<const Table*>(tables[next++]), [&here](auto& to, const auto& from) {
            const std::size_t before = to.size();
            to.insert(to.end(), from.begin(), from.end());
            if constexpr (std::is_same_v<typename std::remove_reference_t<decltype(to)>::value_type, Name>) {
                for (std::size_t row = before; row < to.size(); ++row) {
                    if (to[row] != kNoName) {
                        to[row] = here[static_cast<std::size_t>(to[row])];
                    }
                }
            }
        });
    });
    records += other.records;
    incomplete += other.incomplete;
    unknown += other.unknown;
    damaged += other.damaged;
}

}  // namespace dnnsuite::gpu
