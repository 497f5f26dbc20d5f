// SPDX-License-Identifier: MIT
// Guards of recorded steps: places that Python code can read, each with what was there. All are compared before each
// replay, so they are written against CPython itself. A comparison that fails, or that nobody can make, answers "no":
// the caller then looks at the values themselves.
#include <pybind11/pybind11.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "bindings/c_function.hpp"

namespace py = pybind11;

namespace dnnsuite::bindings {

namespace {

enum class Kind : std::uint8_t { kItems, kElements, kItem, kCell, kAttribute, kResult, kEqual, kBytes, kTable };

/// A buffer, and the bytes that were in it.
struct Memory {
    Py_buffer buffer{};
    std::string bytes{};
};

/// One place, in a line of the cache. `live`, `name` and `known` are references that the table owns; which are set depends on the kind.
struct Guard {
    Kind kind;
    bool by_identity = true;
    PyObject* live = nullptr;
    PyObject* name = nullptr;
    mutable std::uint64_t version = 0;  // of a dict when its guard has held last; 0 if unknown
    std::vector<PyObject*> known{};
    std::unique_ptr<Memory> memory{};
};

struct Guards {
    PyObject_HEAD;
    std::vector<Guard> each;
    long long held;
};

Guards& guards_of(PyObject* object) { return *reinterpret_cast<Guards*>(object); }

/// A number that no other state of any dict has; 0 from Python 3.12 on, which gives such numbers up.
std::uint64_t version_of([[maybe_unused]] PyObject* dict) {
#if PY_VERSION_HEX < 0x030C0000
    return PyDict_Check(dict) ? reinterpret_cast<PyDictObject*>(dict)->ma_version_tag : 0;
#else
    return 0;
#endif
}

/// 1 if a value is the one that was there, or one of the same type that equals it; 0 if not; -1 after an error.
int is_known(const Guard& guard, PyObject* now) {
    PyObject* const before = guard.known.empty() ? nullptr : guard.known.front();
    if (now == before) return 1;
    if (guard.by_identity || now == nullptr || before == nullptr || Py_TYPE(now) != Py_TYPE(before)) return 0;
    return PyObject_RichCompareBool(now, before, Py_EQ);
}

/// As `is_known`, of a new reference, which it takes.
int is_known_result(const Guard& guard, PyObject* now) {
    const int found = is_known(guard, now);
    Py_XDECREF(now);
    return found;
}

bool same_items(const Guard& guard) {
    const std::size_t count = guard.known.size();
    if (static_cast<std::size_t>(PyDict_GET_SIZE(guard.live)) * 2 != count) return false;
    Py_ssize_t at = 0;
    PyObject *key = nullptr, *value = nullptr;
    for (std::size_t place = 0; PyDict_Next(guard.live, &at, &key, &value) != 0; place += 2)
        if (place == count || key != guard.known[place] || value != guard.known[place + 1]) return false;
    return true;
}

bool same_bytes(const Memory& memory) {
    return std::memcmp(memory.buffer.buf, memory.bytes.data(), memory.bytes.size()) == 0;
}

bool same_elements(const Guard& guard) {
    if (static_cast<std::size_t>(PyList_GET_SIZE(guard.live)) != guard.known.size()) return false;
    for (std::size_t place = 0; place < guard.known.size(); ++place)
        if (PyList_GET_ITEM(guard.live, static_cast<Py_ssize_t>(place)) != guard.known[place]) return false;
    return true;
}

/// The value under the guard's name in a mapping, a new reference; null without an error where there is none.
PyObject* item(const Guard& guard) {
    if (PyDict_Check(guard.live)) {
        PyObject* const found = PyDict_GetItemWithError(guard.live, guard.name);
        Py_XINCREF(found);
        return found;
    }
    PyObject* const found = PyObject_GetItem(guard.live, guard.name);
    if (found == nullptr && PyErr_ExceptionMatches(PyExc_KeyError) != 0) PyErr_Clear();
    return found;
}

PyObject* content(const Guard& guard) {
    PyObject* const found = PyCell_GET(guard.live);
    Py_XINCREF(found);
    return found;
}

/// What is at the guard's place now, a new reference; null where there is nothing, or after an error.
PyObject* value_at(const Guard& guard) {
    switch (guard.kind) {
        case Kind::kItem: return item(guard);
        case Kind::kCell: return content(guard);
        case Kind::kAttribute: return PyObject_GetAttr(guard.live, guard.name);
        case Kind::kResult: return PyObject_CallNoArgs(guard.live);
        default: return nullptr;
    }
}

PyObject* guards_hold(PyObject* object, PyObject*);

/// 1 if all guards of another table hold, 0 if one does not, -1 after an error.
int table_holds(PyObject* table) {
    PyObject* const found = guards_hold(table, nullptr);
    if (found == nullptr) return -1;
    Py_DECREF(found);
    return found == Py_True ? 1 : 0;
}

int compared(const Guard& guard);

/// 1 if a guard holds, 0 if it does not, -1 after an error. A dict that was not written since holds at a look.
int holds(const Guard& guard) {
    if (guard.kind != Kind::kItems && guard.kind != Kind::kItem) return compared(guard);
    const std::uint64_t version = version_of(guard.live);
    if (version != 0 && version == guard.version) return 1;
    const int found = compared(guard);
    if (found == 1) guard.version = version;
    return found;
}

int compared(const Guard& guard) {
    switch (guard.kind) {
        case Kind::kItems: return same_items(guard) ? 1 : 0;
        case Kind::kElements: return same_elements(guard) ? 1 : 0;
        case Kind::kEqual: return PyObject_RichCompareBool(guard.live, guard.known.front(), Py_EQ);
        case Kind::kBytes: return same_bytes(*guard.memory) ? 1 : 0;
        case Kind::kTable: return table_holds(guard.live);
        default: break;
    }
    PyObject* const now = value_at(guard);
    if (now == nullptr && PyErr_Occurred() != nullptr) return -1;
    return is_known_result(guard, now);
}

PyObject* guards_hold(PyObject* object, PyObject*) {
    Guards& self = guards_of(object);
    for (std::size_t place = 0; place < self.each.size(); ++place) {  // code that runs here may add guards
        const int found = holds(self.each[place]);
        if (found == 1) continue;
        if (found < 0) {
            if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;  // as KeyboardInterrupt
            PyErr_Clear();
        }
        Py_RETURN_FALSE;
    }
    ++self.held;
    Py_RETURN_TRUE;
}

Guard& added(PyObject* object, Kind kind, PyObject* live, PyObject* name = nullptr) {
    Guard& guard = guards_of(object).each.emplace_back();
    guard.kind = kind;
    guard.live = Py_NewRef(live);
    guard.name = Py_XNewRef(name);
    return guard;
}

/// Reads the value that the newest guard compares with. Returns None, or null after an error; the guard is gone then.
PyObject* read_first(PyObject* object, PyObject* by_identity) {
    std::vector<Guard>& each = guards_of(object).each;
    PyObject* const now = value_at(each.back());
    Guard& guard = each.back();
    guard.by_identity = by_identity == nullptr || PyObject_IsTrue(by_identity) == 1;
    if (now == nullptr && PyErr_Occurred() != nullptr) {
        Py_CLEAR(guard.live);
        Py_CLEAR(guard.name);
        each.pop_back();
        return nullptr;
    }
    if (now != nullptr) guard.known.push_back(now);
    Py_RETURN_NONE;
}

PyObject* wrong_arguments(const char* expected) {
    PyErr_SetString(PyExc_TypeError, expected);
    return nullptr;
}

PyObject* guards_container(PyObject* object, PyObject* const* given, Py_ssize_t count) {
    if (count < 1 || count > 2) return wrong_arguments("container(value, copy=None)");
    PyObject* const value = given[0];
    return guarded([&]() -> PyObject* {
        if (PyDict_Check(value) && (!PyODict_Check(value) || PyDict_GET_SIZE(value) < 2)) {  // its order is its own
            Guard& guard = added(object, Kind::kItems, value);
            Py_ssize_t at = 0;
            PyObject *key = nullptr, *part = nullptr;
            while (PyDict_Next(value, &at, &key, &part) != 0) {
                guard.known.push_back(Py_NewRef(key));
                guard.known.push_back(Py_NewRef(part));
            }
        } else if (PyList_Check(value)) {
            Guard& guard = added(object, Kind::kElements, value);
            for (Py_ssize_t place = 0; place < PyList_GET_SIZE(value); ++place)
                guard.known.push_back(Py_NewRef(PyList_GET_ITEM(value, place)));
        } else if (count == 2) {
            added(object, Kind::kEqual, value).known.push_back(Py_NewRef(given[1]));
        } else {
            return wrong_arguments("container(value): a container that is no dict or list needs a copy of it");
        }
        Py_RETURN_NONE;
    });
}

PyObject* guards_item(PyObject* object, PyObject* const* given, Py_ssize_t count) {
    if (count != 2) return wrong_arguments("item(mapping, key)");
    return guarded([&] {
        added(object, Kind::kItem, given[0], given[1]);
        return read_first(object, nullptr);
    });
}

PyObject* guards_cell(PyObject* object, PyObject* cell) {
    if (!PyCell_Check(cell)) return wrong_arguments("cell(cell): not a cell of a closure");
    return guarded([&] {
        added(object, Kind::kCell, cell);
        return read_first(object, nullptr);
    });
}

PyObject* guards_attribute(PyObject* object, PyObject* const* given, Py_ssize_t count) {
    if (count != 2) return wrong_arguments("attribute(object, name)");
    return guarded([&] {
        added(object, Kind::kAttribute, given[0], given[1]);
        return read_first(object, Py_False);
    });
}

PyObject* guards_result(PyObject* object, PyObject* const* given, Py_ssize_t count) {
    if (count < 1 || count > 2) return wrong_arguments("result(function, by_identity=False)");
    return guarded([&] {
        added(object, Kind::kResult, given[0]);
        return read_first(object, count == 2 ? given[1] : Py_False);
    });
}

PyObject* guards_memory(PyObject* object, PyObject* value) {
    return guarded([&]() -> PyObject* {
        Py_buffer buffer{};
        if (PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE) != 0) return nullptr;
        Guard& guard = guards_of(object).each.emplace_back();
        guard.kind = Kind::kBytes;
        guard.memory = std::make_unique<Memory>();
        guard.memory->buffer = buffer;
        guard.memory->bytes.assign(static_cast<const char*>(buffer.buf), static_cast<std::size_t>(buffer.len));
        Py_RETURN_NONE;
    });
}

PyObject* guards_table(PyObject* object, PyObject* table) {
    if (Py_TYPE(table) != Py_TYPE(object) || table == object) return wrong_arguments("table(guards): another Guards");
    return guarded([&]() -> PyObject* {
        added(object, Kind::kTable, table);
        Py_RETURN_NONE;
    });
}

PyObject* guards_new(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* const made = type->tp_alloc(type, 0);
    if (made != nullptr) new (&guards_of(made).each) std::vector<Guard>();
    return made;
}

int guards_traverse(PyObject* object, visitproc visit, void* arg) {
    for (const Guard& guard : guards_of(object).each) {
        Py_VISIT(guard.live);
        Py_VISIT(guard.name);
        if (guard.memory != nullptr) Py_VISIT(guard.memory->buffer.obj);
        for (PyObject* const one : guard.known) Py_VISIT(one);
    }
    Py_VISIT(Py_TYPE(object));
    return 0;
}

int guards_clear(PyObject* object) {
    std::vector<Guard> each;
    each.swap(guards_of(object).each);  // what ends with them may ask this table
    for (Guard& guard : each) {
        Py_CLEAR(guard.live);
        Py_CLEAR(guard.name);
        if (guard.memory != nullptr) PyBuffer_Release(&guard.memory->buffer);
        for (PyObject*& one : guard.known) Py_CLEAR(one);
    }
    return 0;
}

void guards_dealloc(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    guards_clear(object);
    guards_of(object).each.~vector();
    type->tp_free(object);
    Py_DECREF(type);
}

Py_ssize_t guards_length(PyObject* object) { return static_cast<Py_ssize_t>(guards_of(object).each.size()); }

PyObject* guards_held(PyObject* object, void*) { return PyLong_FromLongLong(guards_of(object).held); }

template <class Function>
PyCFunction method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef guards_methods[] = {
    {"hold", guards_hold, METH_NOARGS,
     "hold(self) -> bool\n\nTrue if all is as it was; False at the first that is not, or cannot be compared."},
    {"container", method(guards_container), METH_FASTCALL,
     "container(self, value: object, copy: object = None) -> None\n\nGuard a dict or a list: its keys and values are "
     "the same objects, in the same order. Any other\ncontainer equals the `copy` of it."},
    {"item", method(guards_item), METH_FASTCALL,
     "item(self, mapping: object, key: object) -> None\n\nGuard the object under a key, or that there is none."},
    {"cell", guards_cell, METH_O, "cell(self, cell: object) -> None\n\nGuard the object that a closure's cell holds."},
    {"attribute", method(guards_attribute), METH_FASTCALL,
     "attribute(self, owner: object, name: str) -> None\n\nGuard an attribute: the same object, or an equal one of "
     "its type."},
    {"result", method(guards_result), METH_FASTCALL,
     "result(self, function: object, by_identity: bool = False) -> None\n\nGuard what a call returns: the same "
     "object, or without `by_identity` an equal one of its type."},
    {"table", guards_table, METH_O, "table(self, guards: Guards) -> None\n\nGuard all that another table guards."},
    {"memory", guards_memory, METH_O, "memory(self, buffer: object) -> None\n\nGuard the bytes of a buffer."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef guards_properties[] = {
    {"held", guards_held, nullptr, "How often all have held.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot guards_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(guards_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(guards_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(guards_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(guards_clear)},
    {Py_tp_methods, guards_methods},
    {Py_tp_getset, guards_properties},
    {Py_mp_length, reinterpret_cast<void*>(guards_length)},
    {Py_tp_doc, const_cast<char*>("Places that Python code can read, and what was there when each was added.")},
    {0, nullptr},
};
PyType_Spec guards_spec = {"dnnsuite._C.Guards", sizeof(Guards), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           guards_slots};

}  // namespace

void init_guards(py::module_& m) {
    m.attr("Guards") = py::reinterpret_steal<py::object>(PyType_FromSpec(&guards_spec));
}

}  // namespace dnnsuite::bindings
