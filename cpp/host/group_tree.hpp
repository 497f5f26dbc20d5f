// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "host/cgroup.hpp"
#include "host/hierarchy.hpp"

namespace dnnsuite::host {

/// Place of the groups of one supervisor: a folder `name` in each hierarchy that has one of the controllers.
///
/// `parent` ("/a/b") is below the root of each hierarchy; it is made where it is not. Without one it is, in version
/// 2, this process's own group, which then must hold no stranger: this process and its descendants move to a group
/// beside, until the tree goes. In version 1 it is the outermost group that has no tighter limit than the own one.
///
/// Everything is put back by the destructor: groups of the tree that are left (with what runs in them), controllers
/// switched on, processes moved.
class GroupTree {
  public:
    /// Throws CgroupError: CgroupNotMounted, CgroupReadOnly, CgroupPermissionDenied, CgroupBusy, CgroupExists, ...
    /// A controller that cannot be had is no error: it is in missing().
    GroupTree(const std::string& root, const std::string& parent, const std::string& name,
              const std::vector<std::string>& controllers);
    ~GroupTree();
    GroupTree(const GroupTree&) = delete;
    GroupTree& operator=(const GroupTree&) = delete;

    /// A group of its own for one run.
    Cgroup make(const std::string& name, const Limits& limits) const { return Cgroup::create(branches_, name, limits); }

    /// The folders of the tree.
    const std::vector<Branch>& branches() const noexcept { return branches_; }
    /// Controllers that cannot be had, with the reason.
    const std::map<std::string, std::string>& missing() const noexcept { return missing_; }
    /// Puts everything back; the destructor does it otherwise.
    void close() noexcept;

  private:
    void plant(const Hierarchy& hierarchy, const std::string& parent, const std::string& name,
               std::vector<std::string> controllers);
    std::string base_v2(const Hierarchy& hierarchy, const std::string& name, bool with_controllers);
    void make_parent(const Hierarchy& hierarchy, const std::string& folder);
    void evacuate(const std::string& own, const std::string& supervisor);
    bool enable(const std::string& mount_point, const std::string& folder, const std::string& controller);

    std::vector<Branch> branches_;
    std::map<std::string, std::string> missing_;
    std::vector<std::string> made_;                             // folders of `parent`
    std::vector<std::pair<std::string, std::string>> enabled_;  // folder, controller
    std::string own_, supervisor_;                              // processes moved from, to
};

}  // namespace dnnsuite::host
