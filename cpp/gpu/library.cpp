// SPDX-License-Identifier: MIT
#include "gpu/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace dnnsuite::gpu {

namespace {

struct Registry {
    std::mutex mutex;
    std::vector<std::string> folders;
    std::map<std::string, std::unique_ptr<Library>> opened;
};

Registry& registry() {
    static Registry* const one = new Registry;  // outlives every exit handler
    return *one;
}

std::string path_of(void* handle, const std::string& name) {
    link_map* map = nullptr;
    const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && *map->l_name != '\0';
    return known ? map->l_name : name;
}

}  // namespace

const Library& Library::open(const std::string& name, const std::string& remedy) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (const auto known = all.opened.find(name); known != all.opened.end()) {
        return *known->second;
    }
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
    std::string looked = "the process";
    std::string broken;
    const auto attempt = [&](const std::string& path) {
        handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            const std::string reason = dlerror();
            if (reason.find("No such file") == std::string::npos) {
                broken += "; " + reason;
            }
        }
    };
    for (const std::string& folder : all.folders) {
        if (handle != nullptr) {
            break;
        }
        looked += ", " + folder;
        attempt(folder + "/" + name);
    }
    if (handle == nullptr) {
        looked += ", the loader's path";
        attempt(name);
    }
    if (handle == nullptr) {
        throw Unavailable(name + " cannot be loaded" + broken, looked, remedy);
    }
    std::unique_ptr<Library> library(new Library(handle, path_of(handle, name)));
    return *all.opened.emplace(name, std::move(library)).first->second;
}

void* Library::find(const char* symbol) const noexcept { return dlsym(handle_, symbol); }

void* Library::require(const char* symbol) const {
    void* const address = find(symbol);
    if (address == nullptr) {
        throw Unavailable("no function " + std::string(symbol), path_, "install a newer version of it");
    }
    return address;
}

void add_library_folder(const std::string& folder) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (std::find(all.folders.begin(), all.folders.end(), folder) == all.folders.end()) {
        all.folders.push_back(folder);
    }
}

std::vector<std::string> library_folders() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    return all.folders;
}

}  // namespace dnnsuite::gpu
