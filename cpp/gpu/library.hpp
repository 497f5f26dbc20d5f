// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace dnnsuite::gpu {

/// A vendor's shared library, opened when it is first asked for and never closed: these libraries start threads and
/// exit handlers of their own. Nothing of CUDA is linked, so this package loads on any machine.
class Library {
  public:
    /// The library called `name` ("libcupti.so.13"), from the first of: the copy that the process has already (torch
    /// brings its own, and two copies of CUPTI do not share their state), the folders of `add_folder`, and wherever
    /// the loader looks. Throws Unavailable saying where it looked.
    static const Library& open(const std::string& name, const std::string& remedy);

    /// The address of a symbol, or nullptr.
    void* find(const char* symbol) const noexcept;

    /// The function `symbol`, to be named with its header's declaration: `function<decltype(cuptiGetVersion)>(...)`.
    /// Throws Unavailable when this version of the library has none.
    template <class Function>
    Function* function(const char* symbol) const {
        return reinterpret_cast<Function*>(require(symbol));
    }

    /// The file that was opened.
    const std::string& path() const noexcept { return path_; }

  private:
    Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
    void* require(const char* symbol) const;

    void* handle_;
    std::string path_;
};

/// Adds a folder to look in: those of the pip wheels, which only Python knows, and of the toolkit. Once is enough.
void add_library_folder(const std::string& folder);
/// The folders, in the order in which they are searched.
std::vector<std::string> library_folders();

}  // namespace dnnsuite::gpu
